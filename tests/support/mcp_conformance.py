"""The client that the conformance kit of MCP tests: `python -m tests.support.mcp_conformance URL`.

The kit names the scenario in `MCP_CONFORMANCE_SCENARIO` and its secrets in `MCP_CONFORMANCE_CONTEXT`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from noesium_stream.errors import NoesiumError
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.legs import Unfinished, resumable
from noesium_stream.tool.mcp import ClientCredentials, mcp

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = ToolContext("kit", Path("/"), timeout_ms=10_000, call_id="key")
VALUES = {"string": "text", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}


def argument(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return "text"
    if "enum" in schema:
        return schema["enum"][0]
    return VALUES.get(str(schema.get("type")), "text")


def arguments_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: argument(one) for name, one in schema.get("properties", {}).items()}


def calls() -> list[tuple[str, dict[str, Any]]]:
    """The calls that the kit asks for in this scenario; without them each tool is called once."""
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return [(call["name"], call["arguments"]) for call in known.get("toolCalls", [])]


def answers(requests: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key, request in requests.items():
        schema = request["params"].get("requestedSchema", {})
        content = {
            name: one.get("default", argument(one)) for name, one in schema.get("properties", {}).items()
        }
        found[key] = {"action": "accept", "content": content}
    return found


async def accepted(params: dict[str, Any]) -> dict[str, Any]:
    return dict(answers({"it": {"params": params}})["it"])


def credentials(known: dict[str, Any]) -> ClientCredentials | None:
    """The client credentials of this scenario; None: it has none."""
    for field, method in (("client_secret", "client_secret_basic"), ("private_key_pem", "private_key_jwt")):
        if field in known:
            os.environ["KIT_SECRET"] = known[field]
            return ClientCredentials(known["client_id"], "KIT_SECRET", method=method)
    return None


async def main(url: str) -> None:
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    kit = mcp(url, name="kit", auth=credentials(known), answer=accepted)
    await kit.start()
    try:
        tools = {tool.name.removeprefix("kit__"): tool for tool in kit.tools()}
        wanted = calls() or [(name, arguments_of(dict(tool.input_schema))) for name, tool in tools.items()]
        for name, arguments in wanted:
            tool = tools.get(name)
            if tool is None:
                continue
            if "schema" in tool.input_schema.get("properties", {}):  # of another tool
                arguments = {"schema": dict(tools["json_schema_2020_12_tool"].input_schema)}
            try:
                value = await tool.execute(arguments, CONTEXT)
                serves = resumable(tool)
                while isinstance(value, Unfinished) and serves is not None:
                    asked = answers(dict(value.requests)) if hasattr(value, "requests") else None
                    value = await serves.resume(arguments, CONTEXT, value, asked)
                print(name, value)
            except NoesiumError as error:
                print(name, repr(error))
    finally:
        await kit.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
