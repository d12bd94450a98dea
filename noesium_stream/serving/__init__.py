"""Parts of the servers for clients of other systems (A2A, MCP): requesters, offers, and runs as tasks.

The modules `gate` and `listener` need an extra, `a2a` or `mcp`; importing this package needs nothing.
"""
