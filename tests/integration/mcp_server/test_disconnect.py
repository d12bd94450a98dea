"""Clients of `noesium mcp serve` that go away in the middle of a call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from noesium_stream.client import Client
from noesium_stream.mcp_server.calls import KEY_FIELD
from tests.support.a2a import Desk
from tests.support.mcp_serving import Place
from tests.support.reading import eventually

KEYED: dict[str, Any] = {"name": "desk.wait", "arguments": {}, "_meta": {KEY_FIELD: "k1"}}
PLAIN: dict[str, Any] = {"name": "desk.wait", "arguments": {}}


async def test_a_plain_call_ends_with_its_client_and_a_call_with_a_key_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.working(Desk) as log, Client(log) as runs:

        async def statuses() -> list[str]:
            return sorted(run.status for run in await runs.list_runs())

        async def become(*wanted: str) -> None:
            async def are() -> bool:
                return await statuses() == [*wanted]

            await eventually(are)

        with place.serving() as server:
            for params, wanted in ((KEYED, ["waiting"]), (PLAIN, ["waiting", "waiting"])):
                calling = asyncio.create_task(server.post("tools/call", dict(params), tasks=False))
                await become(*wanted)
                calling.cancel()
            await become("cancelled", "waiting")
            again = asyncio.create_task(server.ask("tools/call", dict(KEYED), tasks=False))
            [going_on] = [run for run in await runs.list_runs() if run.status == "waiting"]
            await runs.run_handle("desk", going_on.run_id).signal("go", "now")
            assert (await again)["content"][0]["text"] == "now"
        assert await statuses() == ["cancelled", "completed"]
