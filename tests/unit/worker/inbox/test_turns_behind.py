"""What waits behind one command, however much it is: taken up in parts, in order, before anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import RunCancelledError
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker.inbox import turns
from tests.support.lives import NEVER, Life
from tests.support.reading import PATIENCE_S, eventually

SIGNALS = 10


class Noting(Life):
    """Notes how many signals each commit accepts."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self.accepted: list[int] = []
        super().__init__(*given, **options)

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        count = sum(sent.envelope.event_type == "run.signalled" for sent in outgoing)
        if count:
            self.accepted.append(count)
        return await super()._commit(outgoing, commit)


@pytest.mark.parametrize("dies", [False, True], ids=["one life", "dies in between"])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_waits_behind_a_command_is_taken_up_in_parts_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool, dies: bool
) -> None:
    monkeypatch.setattr(turns, "BEHIND_AT_ONCE", 3)
    go = asyncio.Event()

    async def work(state: dict[str, Any]) -> dict[str, Any]:
        if "blocks" in state:
            await go.wait()
            return {}
        if cancelled:
            await asyncio.Event().wait()
        return {"heard": [await current_step().signal("go") for _ in range(SIGNALS + 1)]}

    agent = agent_from_graph(StateGraph(dict).add_node(work).add_edge(START, "work"))
    log = await open_log("memory://?partitions=1")
    async with asyncio.timeout(PATIENCE_S), Client(log) as client:
        first = Noting(log, agent, tmp_path, concurrency=1)
        runs: list[Any] = []

        async def begins() -> None:
            blocker = await client.start("sample", {"blocks": True})
            await eventually(lambda: _begun(blocker))
            runs.append(await client.start("sample", {}))
            for number in range(SIGNALS):
                await runs[0].signal("go", number)
            if cancelled:
                await runs[0].cancel()
            waiting = 1 + SIGNALS + cancelled
            await eventually(lambda: _is(first.tenures[0].keeper.state.manifest.counts["waiting"] == waiting))
            first._dies_at = first._commits + 4 if dies else NEVER
            go.set()
            await ends()

        async def ends() -> None:
            if cancelled:
                with pytest.raises(RunCancelledError):
                    await runs[0].result(timeout=PATIENCE_S)
            else:
                await runs[0].signal("go", SIGNALS)
                assert (await runs[0].result(timeout=PATIENCE_S))["heard"] == list(range(SIGNALS + 1))

        assert await first.live(begins) != dies
        if dies:
            assert await Noting(log, agent, tmp_path).live(ends)
        assert max(first.accepted) <= 3
        events = [event async for event in runs[0].events(follow=False)]
        heard = [event.payload["value"] for event in events if event.event_type == "run.signalled"]
        assert heard[:SIGNALS] == list(range(SIGNALS))
    await log.close()


async def _begun(run: Any) -> bool:
    return any([event.event_type == "run.started" async for event in run.events(follow=False)])


async def _is(true: bool) -> bool:
    return true
