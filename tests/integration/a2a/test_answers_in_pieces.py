"""Answers in pieces over A2A: between the changes of a task, before its result, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from a2a.types import SubscribeToTaskRequest

from noesium_stream.client import Client
from tests.support.a2a import Place, after, message, seen
from tests.support.teller import Teller

pytestmark = pytest.mark.usefixtures("no_piece_lost")

WORDS = ["in ", "the ", "beginning ", "was ", "the ", "log"]


async def test_a_client_that_comes_back_gets_the_pieces_that_it_has_not(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first: list[dict[str, Any]] = []
    async with place.working(Teller) as log, Client(log) as runs:
        with place.serving() as server:
            async with server.client(streaming=True) as client:
                request = message("m1", {"words": WORDS, "halt": 3})
                async for response in client.send_message(request):
                    first.append(seen(response))
                    if first[-1].get("piece") == "beginning ":
                        break
        [info] = await runs.list_runs()
        begun = next(event for event in first if event.get("state") == "WORKING")
        await runs.run_handle("teller", info.run_id).signal("go")
        with place.serving() as server:
            async with server.client(streaming=True) as client:
                request = SubscribeToTaskRequest(id=f"teller.{info.run_id}")
                context = after(first[-1]["cursor"])
                rest = [seen(response) async for response in client.subscribe(request, context=context)]
                whole = [
                    seen(response)
                    async for response in client.subscribe(request, context=after(begun["cursor"]))
                ]
    pieces = [event["piece"] for event in [*first, *rest] if "piece" in event]
    assert pieces == WORDS
    assert [event["append"] for event in first if "piece" in event] == [None, True, True]
    assert rest[0]["kind"] == "task"
    assert [event["kind"] for event in rest if "piece" not in event][-2:] == [
        "artifact_update",
        "status_update",
    ]
    assert "piece" not in rest[-1]
    assert rest[-1]["state"] == "COMPLETED"
    # Whoever has only the beginning gets all.
    assert [event["piece"] for event in whole if "piece" in event] == WORDS
