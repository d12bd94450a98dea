"""An OpenAPI document of a shop, and its tools as an executor calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.openapi import OpenApiToolkit
from tests.support.sites import Site

ITEM = {
    "type": "object",
    "required": ["id", "name", "secret"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string", "maxLength": 50},
        "secret": {"type": "string", "writeOnly": True},
        "note": {"type": "string", "nullable": True},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
    },
}


def shop(url: str = "https://shop.example/v1", version: str = "3.0.3", **operations: Any) -> dict[str, Any]:
    """A document; further operations by path or by name replace those of `/items`."""
    one = {"$ref": "#/components/responses/One"}
    paths: dict[str, Any] = {
        "/items/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"operationId": "getItem", "summary": "One item.", "responses": {"200": one}},
            "put": {"operationId": "putItem", "requestBody": _body(), "responses": {200: one}},
            "delete": {"operationId": "deleteItem", "responses": {"204": {"description": "gone"}}},
        },
        "/items": {
            "get": {
                "operationId": "findItems",
                "parameters": [
                    {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"content": {"application/json": {"schema": {"type": "array"}}}}},
            },
            "post": {"operationId": "addItem", "requestBody": _body(), "responses": {"201": one}},
        },
    }
    return {
        "openapi": version,
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": url}],
        "paths": {**paths, **operations},
        "components": {
            "schemas": {"Item": ITEM},
            "responses": {"One": {"content": {"application/json": {"schema": _ITEM_REFERENCE}}}},
        },
    }


_ITEM_REFERENCE = {"$ref": "#/components/schemas/Item"}


def _body() -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": _ITEM_REFERENCE}}}


def tools_of(document: Any, **settings: Any) -> dict[str, AtomicTool]:
    """The tools of a document, by name."""
    return {one.name: one for one in OpenApiToolkit(document, **settings).tools()}


async def call(site: Site, name: str, *, key: str | None = None, **arguments: Any) -> Any:
    """Call a tool of the shop on a site, judged as an executor does."""
    return await call_tool(shop(site.url("/v1")), site, name, arguments, key=key)


async def call_tool(
    document: Any,
    site: Site,
    name: str,
    arguments: dict[str, Any],
    *,
    key: str | None = None,
    **settings: Any,
) -> Any:
    """Call a tool of a document on a site."""
    tool = tools_of(document, allow_private=(site.host,), **settings)[name]
    tool.check_input(arguments)
    context = ToolContext("clerk", Path("/nowhere"), tool.permissions, call_id=key)
    found = await tool.execute(arguments, context)
    tool.check_output(found)
    return found
