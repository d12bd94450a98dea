"""A copy of the registry follows the log, tells of changes, and restarts from a snapshot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream import (
    AgentRef,
    Capability,
    CapabilityRegistry,
    CapabilityType,
    DeterminismClass,
    DiscoveryService,
    EventLog,
    LatencyClass,
    SideEffectClass,
    open_log,
)
from noesium_stream.capabilities.registry_bytes import registry_bytes
from noesium_stream.clock import VirtualClock
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import AgentRecovered, AgentUnavailable, ToolRegistered
from noesium_stream.event.trust.policy import Policy
from tests.support.reading import PATIENCE_S

A, B = AgentRef("a", "worker-a"), AgentRef("b", "worker-b")


def capability(version: str = "1.0.0", **more: object) -> Capability:
    return Capability(id="corpus.search", version=version, input_schema={}, output_schema={}, **more)  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'log.db'}"
    opened = await open_log(url)
    yield opened
    await opened.close()


async def test_one_who_waits_is_told_of_the_next_registration(log: EventLog) -> None:
    registry, writer = CapabilityRegistry(log), CapabilityRegistry(log)
    await registry.refresh()
    waiting = [asyncio.create_task(registry.changed(after=registry.offset)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await writer.register(A, capability())
    assert await asyncio.gather(*waiting) == [1, 1, 1]
    assert await registry.changed(after=0) == 1  # at once: it has changed already
    later = asyncio.create_task(registry.changed(after=1))
    await writer.deprecate(A, "corpus.search", "1.0.0", "old")
    assert await later == 2


async def test_a_service_follows_the_log_while_it_is_open(log: EventLog) -> None:
    writer = CapabilityRegistry(log)
    async with DiscoveryService(log) as discovery:
        assert discovery.resolve("corpus.search").chosen is None
        await writer.register(A, capability(tags=["search"]))
        await discovery.changed(after=discovery.position)
        assert [str(one) for one in discovery.find("corpus.search", "^1")] == ["corpus.search 1.0.0 of a"]
        assert discovery.find_by_tag("search") == discovery.query(tag="search", id="corpus.search")
        assert registry_bytes(discovery.state) == registry_bytes(await writer.refresh())
    await discovery.close()


async def test_who_gives_up_waiting_leaves_nothing_behind(log: EventLog) -> None:
    registry = CapabilityRegistry(log)
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await registry.changed(after=registry.offset)
    await asyncio.sleep(0)
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    await asyncio.wait(left, timeout=PATIENCE_S) if left else None
    assert {task for task in left if not task.done()} == set()


async def test_offers_of_an_unavailable_agent_are_passed_over_until_it_recovers(log: EventLog) -> None:
    registry, clock = CapabilityRegistry(log), VirtualClock()
    watcher = AgentRef("watcher", "watcher")
    await registry.register(A, capability(priority=1))
    await registry.register(B, capability())
    gone = AgentUnavailable(agent_id="a", agent_type="worker-a", reason="3 heartbeats missed")
    await log.append([root_event(gone, watcher, clock)])
    assert (await registry.resolve("corpus.search")).agent_id == "b"
    explained = await registry.resolve("corpus.search", explain=True)
    assert [str(one) for one in explained.candidates] == [
        "corpus.search 1.0.0 of b: taken: the only one of the highest priority 0",
        "corpus.search 1.0.0 of a: its agent is unavailable: 3 heartbeats missed",
    ]
    await log.append([root_event(AgentRecovered(agent_id="a", agent_type="worker-a"), watcher, clock)])
    assert (await registry.resolve("corpus.search")).agent_id == "a"


async def test_a_policy_decides_who_may_call_an_agent_unavailable(log: EventLog) -> None:
    policy = Policy.model_validate({"allow": [{"who": ["agent:worker-a"], "may": ["register"]}]})
    registry, clock = CapabilityRegistry(log, policy=policy), VirtualClock()
    await registry.register(A, capability())
    gone = AgentUnavailable(agent_id="a", agent_type="worker-a", reason="envy")
    await log.append([root_event(gone, B, clock)])
    assert (await registry.resolve("corpus.search")).agent_id == "a"
    await log.append([root_event(gone, A, clock)])
    assert (await registry.resolve("corpus.search", explain=True)).chosen is None


async def test_a_query_finds_what_is_like_it(log: EventLog) -> None:
    registry = CapabilityRegistry(log)
    await registry.register(A, capability("1.0.0"))
    await registry.register(
        B,
        capability(
            "2.0.0",
            determinism_class=DeterminismClass.DETERMINISTIC,
            capability_type=CapabilityType.REMOTE_TOOL,
            side_effects=SideEffectClass.PURE,
            latency_class=LatencyClass.FAST,
            tags=["x"],
        ),
    )
    both = [("a", "1.0.0"), ("b", "2.0.0")]

    async def found(**like: object) -> list[tuple[str, str]]:
        return [(one.agent_id, one.version) for one in await registry.query(**like)]  # type: ignore[arg-type]

    assert await found() == both
    assert await found(id="corpus.search") == both
    assert await found(id="other") == []
    for like in (
        {"determinism": DeterminismClass.DETERMINISTIC},
        {"capability_type": CapabilityType.REMOTE_TOOL},
        {"side_effects": SideEffectClass.PURE},
        {"latency": LatencyClass.FAST},
        {"tag": "x"},
        {"version": "^2"},
        {"id": "corpus.search", "version": ">=1.5"},
    ):
        assert await found(**like) == both[1:], like
    assert await found(version="^2", latency=LatencyClass.SLOW) == []


# -- the snapshot --------------------------------------------------------------------------------------


async def filled(log: EventLog, folder: Path) -> bytes:
    """Register, and leave a snapshot; return what the registry holds."""
    registry = CapabilityRegistry(log, folder=folder)
    await registry.register(A, capability())
    await registry.register(B, capability("1.1.0"))
    state = registry_bytes(await registry.refresh())
    await registry.close()
    return state


class Counted:
    """A log that counts the records that are read."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.cursors: list[object] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def read_batches(self, topic: str, cursor: object, **more: object) -> object:
        self.cursors.append(cursor)
        return self._log.read_batches(topic, cursor, **more)  # type: ignore[arg-type]


async def test_a_restart_reads_only_what_came_after_the_snapshot(log: EventLog, tmp_path: Path) -> None:
    before = await filled(log, tmp_path)
    counted = Counted(log)
    registry = CapabilityRegistry(counted, folder=tmp_path)  # type: ignore[arg-type]
    assert registry_bytes(await registry.refresh()) == before
    assert (counted.cursors, registry.offset) == ([], 2)
    await CapabilityRegistry(log).register(A, capability("1.2.0"))
    assert len(await registry.refresh()) == 3
    assert counted.cursors == [{0: 2}]


@pytest.mark.parametrize(
    "wrong", ["damaged", "cut", "empty", "no snapshot", "other format", "other topic", "ahead", "flipped"]
)
async def test_a_snapshot_that_does_not_fit_is_discarded(log: EventLog, tmp_path: Path, wrong: str) -> None:
    before = await filled(log, tmp_path)
    [path] = tmp_path.glob("*.snapshot")
    content = path.read_bytes()
    head, body = content.split(b"\n", 1)
    fields = json.loads(head)
    changed = {
        "damaged": content.replace(b"1.1.0", b"1.9.0"),
        "cut": content[:-1],
        "empty": b"",
        "no snapshot": b"\xff" * 99,
        "other format": json.dumps({**fields, "format": "0"}).encode() + b"\n" + body,
        "other topic": json.dumps({**fields, "topic_id": "x"}).encode() + b"\n" + body,
        "ahead": json.dumps({**fields, "position": 99}).encode() + b"\n" + body,
        "flipped": b"[]\n" + body,
    }[wrong]
    path.write_bytes(changed)
    counted = Counted(log)
    registry = CapabilityRegistry(counted, folder=tmp_path)  # type: ignore[arg-type]
    assert registry_bytes(await registry.refresh()) == before
    assert counted.cursors == [{0: 0}]
    assert not path.exists()
    await registry.close()
    assert registry_bytes(await CapabilityRegistry(log, folder=tmp_path).refresh()) == before
    assert path.exists()


async def test_another_policy_has_another_snapshot(log: EventLog, tmp_path: Path) -> None:
    await filled(log, tmp_path)
    policy = Policy.model_validate({"allow": [{"who": ["agent:worker-a"], "may": ["register"]}]})
    registry = CapabilityRegistry(log, folder=tmp_path, policy=policy)
    assert [one.agent_id for one in (await registry.refresh()).entries()] == ["a"]


async def test_events_of_others_on_the_topic_change_no_state(log: EventLog) -> None:
    registry, clock = CapabilityRegistry(log), VirtualClock()
    await registry.register(A, capability())
    before = registry_bytes(await registry.refresh())
    tool = ToolRegistered(tool_id="t", name="t", description="", source="builtin", input_schema={})
    await log.append([root_event(tool, A, clock)])
    assert registry_bytes(await registry.refresh()) == before
    assert registry.offset == 2


async def test_all_who_ask_at_once_share_a_reading(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, asked, end = CapabilityRegistry(log), 0, log.end
    await registry.register(AgentRef("a", "a"), Capability(id="c", input_schema={}, output_schema={}))

    async def counted(topic: str) -> dict[int, int]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return await end(topic)

    monkeypatch.setattr(log, "end", counted)
    found = await asyncio.gather(*(registry.resolve("c") for _ in range(50)))
    assert {entry.agent_id for entry in found} == {"a"}
    assert asked <= 2
