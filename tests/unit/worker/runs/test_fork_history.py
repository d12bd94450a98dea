"""A fork shares its parent's history: nothing of it is done again, and it goes on from there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.operate.fork import fork
from noesium_stream.client.operate.replay import recording, state_at, verify
from noesium_stream.errors import CheckpointError, LogUnavailableError
from noesium_stream.event.standard import GraphRef
from noesium_stream.kernel import current_step
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S
from tests.unit.kernel.verify.test_verifier_shapes import chain

REF = GraphRef(graph_id="sample", version="1.0.0", fingerprint="0")
CALLED: Counter[str] = Counter()


def outside(name: str) -> str:
    CALLED[name] += 1
    return name


async def first(state: dict[str, Any]) -> dict[str, Any]:
    CALLED["first"] += 1
    return {"items": ["a"], "value": await current_step().effect("outside", outside, "x")}


def second(state: dict[str, Any]) -> dict[str, Any]:
    CALLED["second"] += 1
    return {"items": ["b"]}


def third(state: dict[str, Any]) -> dict[str, Any]:
    return {"items": [f"{state['value']}{state['n']}{''.join(state['items'])}"]}


GRAPH = chain(first=first, second=second, third=third)


def target() -> ReplayTarget:
    return ReplayTarget(GRAPH.compile(), REF, agent_type="sample")


@pytest.mark.parametrize(
    ("at", "values", "items"),
    [
        (3, {}, ["a", "b", "x1ab"]),
        (2, {}, ["a", "b", "x1ab"]),
        (2, {"value": "y"}, ["a", "b", "y1ab"]),
        (2, {"items": ["c"]}, ["c", "x1c"]),
        (1, {"items[0]": "z", "n": 2}, ["z", "b", "x2zb"]),
        (0, {"n": 5}, ["a", "b", "x5ab"]),
    ],
)
async def test_a_fork_goes_on_from_its_parent_s_state(
    tmp_path: Path, at: int, values: dict[str, Any], items: list[str]
) -> None:
    CALLED.clear()
    async with running(GRAPH, tmp_path) as client:
        parent = await client.start("sample", {"n": 1, "items": []})
        await parent.result(timeout=PATIENCE_S)
        run = await fork(client, parent, at, values, target())
        assert (await run.result(timeout=PATIENCE_S))["items"] == items
        assert {"first": 1 + (at < 1), "second": 1 + (at < 2), "x": 1 + (at < 1)} == CALLED
        events = [event async for event in run.events(follow=False)]
        assert [event.event_type for event in events[:2]] == ["run.requested", "run.started"]
        origin = events[1].payload["forked_from"]
        assert (origin["run_id"], origin["step"]) == (parent.id, at)
        steps = [event.payload["step"] for event in events if event.event_type == "kernel.node.entered"]
        assert steps == list(range(at + 1, 4))
        assert (await verify(run, target())).is_same
        again = await fork(client, run, 3, {"items": ["last"]}, target())
        assert (await again.result(timeout=PATIENCE_S))["items"] == ["last"]


async def test_a_fork_goes_on_elsewhere_after_a_crash(tmp_path: Path) -> None:
    async def wait(state: dict[str, Any]) -> dict[str, Any]:
        return {"items": [await current_step().signal("go")]}

    CALLED.clear()
    graph = chain(first=first, second=second, wait=wait)
    log = await open_log("memory://")
    try:
        async with Client(log) as client:
            async with Worker(log, [agent_from_graph(graph)], home=tmp_path):
                parent = await client.start("sample", {"n": 1, "items": []})
                await parent.signal("go", 1)
                await parent.result(timeout=PATIENCE_S)
                run = await fork(client, parent, 2, {"items": ["c"]}, ReplayTarget(graph.compile(), REF))
                async for event in run.events():
                    if event.event_type == "kernel.node.entered":
                        break
            async with Worker(log, [agent_from_graph(graph)], home=tmp_path):
                await run.signal("go", 2)
                assert (await run.result(timeout=PATIENCE_S))["items"] == ["c", 2]
    finally:
        await log.close()
    assert CALLED == {"first": 1, "second": 1, "x": 1}


class AwayLog:
    """A log that nobody answers for as long as `away` is above 0, when its journals are read."""

    def __init__(self, inner: EventLog) -> None:
        self.inner = inner
        self.away = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read_batches(self, topic: str, *given: Any, **more: Any) -> Any:
        if self.away and "journal" in topic:
            self.away -= 1
            raise LogUnavailableError("nobody answers")
        return self.inner.read_batches(topic, *given, **more)


async def test_a_fork_that_begins_while_the_log_is_away_waits_for_it(tmp_path: Path) -> None:
    inner = await open_log("memory://")
    log = AwayLog(inner)
    try:
        worker = Worker(log, [agent_from_graph(GRAPH)], home=tmp_path)  # type: ignore[arg-type]
        async with Client(inner) as client, worker:
            parent = await client.start("sample", {"n": 1, "items": []})
            await parent.result(timeout=PATIENCE_S)
            log.away = 2
            run = await fork(client, parent, 2, {"items": ["c"]}, target())
            assert (await run.result(timeout=PATIENCE_S))["items"] == ["c", "x1c"]
            assert log.away == 0
    finally:
        await inner.close()


async def test_the_state_at_every_step_is_what_it_was(tmp_path: Path) -> None:
    async with running(GRAPH, tmp_path) as client:
        run = await client.start("sample", {"n": 1, "items": []})
        await run.result(timeout=PATIENCE_S)
        found = await recording(run)
    CALLED.clear()
    assert await state_at(target(), found, 0) == {"n": 1, "items": []}
    assert await state_at(target(), found, 1) == {"n": 1, "items": ["a"], "value": "x"}
    assert (await state_at(target(), found, 3))["items"] == ["a", "b", "x1ab"]
    assert not CALLED
    with pytest.raises(CheckpointError, match="no completed step 4"):
        await state_at(target(), found, 4)
