"""HTTP calls with a schema: the operations of an OpenAPI document as tools (RFC-2003 §5)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.tool.openapi.toolkit import OpenApiConfig, OpenApiToolkit

__all__ = ["OpenApiConfig", "OpenApiToolkit"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, {"OpenApiConfig": "toolkit", "OpenApiToolkit": "toolkit"})
