"""MCP servers as toolkits (RFC-2003 §5.3); the SDK is imported when a server is started."""

from noesium_stream.tool.mcp.auth import Bearer, ClientCredentials
from noesium_stream.tool.mcp.toolkit import McpToolkit, mcp
from noesium_stream.tool.mcp.walls import ServerSandbox

__all__ = ["Bearer", "ClientCredentials", "McpToolkit", "ServerSandbox", "mcp"]
