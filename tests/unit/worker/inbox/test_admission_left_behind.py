"""A state file that is older than what another machine did since: what waited behind a command in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.errors import FencedError
from noesium_stream.event import TraceContext
from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA, fingerprint
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.event.standard import RunSignalled
from noesium_stream.kernel import current_step
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.embedded import group
from noesium_stream.log.memory.open import open_memory
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.log.prepare import Prepared, header_text
from noesium_stream.log.topics import Topology
from noesium_stream.log.url import parse_url
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker.inbox import admission
from noesium_stream.worker.inbox.deferred_requests import Deferred, DeferredRequests
from noesium_stream.worker.runs.open_runs import OpenRuns
from tests.support.lives import Life
from tests.support.reading import PATIENCE_S, eventually
from tests.support.stores import inject, store_of
from tests.unit.client.operate.test_dead_letters import ME


async def work(state: dict[str, Any]) -> dict[str, Any]:
    if "blocks" in state:
        await asyncio.Event().wait()
    return {"heard": await current_step().signal("go")}


AGENT = agent_from_graph(StateGraph(dict).add_node(work).add_edge(START, "work"))


class DiesWhen(Life):
    """Dies with the commit of which this is true; that one is on the log."""

    def __init__(self, log: EventLog, home: Path, when: Callable[[Outgoing], bool], **options: Any) -> None:
        self._when = when
        super().__init__(log, AGENT, home, **options)

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        if any(map(self._when, outgoing)):
            await commit(outgoing)
            self.kill()
        return await super()._commit(outgoing, commit)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


def counts(life: Life) -> dict[str, int]:
    for tenure in life.tenures:
        found: dict[str, int] = tenure.keeper.state.manifest.counts
        return found
    return {"waiting": -1, "deferred": -1}


async def lives_until(life: Life, done: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await life.live(done)


@pytest.mark.parametrize("lost", [False, True])
async def test_what_waited_behind_a_command_that_another_machine_took_up_is_delivered(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """With `lost` the partition is lost at the moment at which that is about to be decided on."""
    async with Client(log) as client:
        blocker = await client.start("sample", {"blocks": True})
        runs: list[Any] = []
        first = Life(log, AGENT, tmp_path / "first", concurrency=1)

        async def waits() -> None:
            await eventually(lambda: _begun(blocker))
            runs.append(await client.start("sample", {}))
            await runs[0].signal("go", "once")
            await eventually(lambda: _is(counts(first)["waiting"] == 2))
            first.tenures[0].keeper.write()
            first.kill()
            await asyncio.Event().wait()

        await lives_until(first, waits)
        (run,) = runs

        monkeypatch.setattr(group, "BATCH_RECORDS", 1)
        other = DiesWhen(
            log, tmp_path / "other", lambda sent: sent.envelope.event_type in COMMANDS and sent.key == run.id
        )
        await lives_until(other, asyncio.Event().wait)
        types = [event.event_type async for event in run.events(follow=False)]
        assert types == ["run.requested", "run.started"]  # it died before it read on

        known = OpenRuns.outcomes_known

        async def lose(self: OpenRuns, run_ids: Collection[str]) -> None:
            nonlocal lost
            await known(self, run_ids)
            if lost and run_ids:
                lost = False
                self.writer.lose(FencedError("lost"))
                await self.eviction.close()
                self.loaded.clear()

        monkeypatch.setattr(OpenRuns, "outcomes_known", lose)
        again = Life(log, AGENT, tmp_path / "first")

        async def heard() -> None:
            assert (await run.result(timeout=PATIENCE_S))["heard"] == "once"
            assert counts(again)["waiting"] == 0

        assert await again.live(heard)


async def opened(name: str, codec: EnvelopeCodec) -> EventLog:
    """A log that other logs of this name share; it reads what its codec knows."""
    url = parse_url(f"memory://{name}?partitions=1")
    return await open_memory(url, url.topology(Topology()), codec, SystemClock())


def data_start(number: int) -> bytes:
    return b"\xc3\x01" + number.to_bytes(8, "little")


async def _begun(run: Any) -> bool:
    return "run.started" in [event.event_type async for event in run.events(follow=False)]


async def _is(what: bool) -> bool:
    return what


async def test_what_waits_behind_a_command_and_cannot_be_read_any_more_is_deferred(
    tmp_path: Path,
) -> None:
    field = {"name": "priority", "type": "int", "default": 0}
    newer = {**ENVELOPE_SCHEMA, "fields": [*ENVELOPE_SCHEMA["fields"], field]}
    number = fingerprint(newer)
    codec = EnvelopeCodec(writer_schemas=[newer])
    knowing = await opened("left-behind", codec)
    log = await opened("left-behind", EnvelopeCodec())
    async with Client(knowing) as client:
        blocker = await client.start("sample", {"blocks": True})
        runs: list[Any] = []
        first = Life(knowing, AGENT, tmp_path, concurrency=1)

        async def waits() -> None:
            await eventually(lambda: _begun(blocker))
            run = await client.start("sample", {})
            runs.append(run)
            said = RunSignalled(run_id=run.id, name="go", value="once")
            envelope = said.to_envelope(
                ME, TraceContext("1" * 32, "1" * 16), partition_key=run.id, metadata={"to": "sample"}
            )
            data = codec.encode(envelope)
            data = data_start(number) + data[10:] + b"\x0e"
            inbox = log.topology.inbox("sample")
            prepared = Prepared(inbox, 0, run.id, header_text(envelope), (), data)
            await inject(knowing, prepared)
            store_of(knowing).changes.notify()
            await eventually(lambda: _is(counts(first)["waiting"] == 2))
            first.tenures[0].keeper.write()
            first.kill()
            await asyncio.Event().wait()

        await lives_until(first, waits)
        (run,) = runs
        again = Life(log, AGENT, tmp_path)

        async def deferred() -> None:
            await eventually(lambda: _is(counts(again)["deferred"] == 1 and counts(again)["waiting"] == 0))

        assert await again.live(deferred)

        async def heard() -> None:
            assert (await run.result(timeout=PATIENCE_S))["heard"] == "once"

        assert await Life(knowing, AGENT, tmp_path).live(heard)
    await knowing.close()
    await log.close()


async def test_a_look_at_what_is_deferred_and_cannot_be_taken_gives_way_to_others(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "DEFERRED_AT_ONCE", 1)
    async with Client(log) as client:
        for _ in range(20):
            await client.start("sample", {}, version="^7.0")
        first = Life(log, AGENT, tmp_path)
        assert await first.live(lambda: eventually(lambda: counts(first)["deferred"] == 20))
        turns, seen = 0, []
        of = DeferredRequests.of

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def noted(self: DeferredRequests, run_id: str) -> list[Deferred]:
            seen.append(turns)
            return of(self, run_id)

        monkeypatch.setattr(DeferredRequests, "of", noted)
        others = asyncio.create_task(turn())
        assert await Life(log, AGENT, tmp_path).live(lambda: eventually(lambda: len(seen) >= 20))
        others.cancel()
        assert len(set(seen[:20])) == 20
