"""A state file that is older than what another machine did since: what waited behind a command in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.client import Client
from noesium_stream.event import TraceContext
from noesium_stream.event.calls import COMMANDS
from noesium_stream.event.schema import ENVELOPE_SCHEMA, fingerprint
from noesium_stream.event.standard import RunSignalled
from noesium_stream.kernel import current_step
from noesium_stream.log import EventLog, group, open_log
from noesium_stream.log.headers import header_text
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.log.prepare import Prepared
from noesium_stream.testing import agent_of
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import keeping
from noesium_stream.worker.decisions import Decisions
from noesium_stream.worker.kept import Kept, KeptRequests
from tests.support.lives import Life
from tests.support.reading import eventually
from tests.unit.client.test_dead_letters import ME


async def work(state: dict[str, Any]) -> dict[str, Any]:
    if "blocks" in state:
        await asyncio.Event().wait()
    return {"heard": await current_step().signal("go")}


AGENT = agent_of(StateGraph(dict).add_node(work).add_edge(START, "work"))


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
    for owner in life.owners:
        if owner._intake is not None:
            found: dict[str, int] = owner._keeper.state.manifest.counts
            return found
    return {"waiting": -1, "parked": -1}


async def lives_until(life: Life, done: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(20):
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
            first.owners[0]._keeper._write()
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

        known = Decisions.outcomes_known

        async def lose(self: Decisions, run_ids: Collection[str]) -> None:
            nonlocal lost
            await known(self, run_ids)
            if lost and run_ids:
                lost = False
                self.closed = True
                await self._parking.close()
                self._runs.loaded.clear()

        monkeypatch.setattr(Decisions, "outcomes_known", lose)
        again = Life(log, AGENT, tmp_path / "first")

        async def heard() -> None:
            assert (await run.result(timeout=10))["heard"] == "once"
            assert counts(again)["waiting"] == 0

        assert await again.live(heard)


def data_start(number: int) -> bytes:
    return b"\xc3\x01" + number.to_bytes(8, "little")


async def _begun(run: Any) -> bool:
    return "run.started" in [event.event_type async for event in run.events(follow=False)]


async def _is(what: bool) -> bool:
    return what


async def test_what_waits_behind_a_command_and_cannot_be_read_any_more_is_parked(
    log: EventLog, tmp_path: Path
) -> None:
    codec: Any = log._codec  # type: ignore[attr-defined]
    field = {"name": "priority", "type": "int", "default": 0}
    newer = {**ENVELOPE_SCHEMA, "fields": [*ENVELOPE_SCHEMA["fields"], field]}
    number = fingerprint(newer)
    codec._schemas[number] = newer
    async with Client(log) as client:
        blocker = await client.start("sample", {"blocks": True})
        runs: list[Any] = []
        first = Life(log, AGENT, tmp_path, concurrency=1)

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
            await log._store.append([prepared], [0])  # type: ignore[attr-defined]
            log._store.changes.notify()  # type: ignore[attr-defined]
            await eventually(lambda: _is(counts(first)["waiting"] == 2))
            first.owners[0]._keeper._write()
            first.kill()
            await asyncio.Event().wait()

        await lives_until(first, waits)
        (run,) = runs
        del codec._schemas[number]
        codec._readers.pop(data_start(number), None)
        again = Life(log, AGENT, tmp_path)

        async def parked() -> None:
            await eventually(lambda: _is(counts(again)["parked"] == 1 and counts(again)["waiting"] == 0))

        assert await again.live(parked)
        codec._schemas[number] = newer

        async def heard() -> None:
            assert (await run.result(timeout=10))["heard"] == "once"

        assert await Life(log, AGENT, tmp_path).live(heard)


async def test_a_look_at_what_is_parked_and_cannot_be_taken_gives_way_to_others(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PARKED_AT_ONCE", 1)
    async with Client(log) as client:
        for _ in range(20):
            await client.start("sample", {}, version="^7.0")
        first = Life(log, AGENT, tmp_path)
        assert await first.live(lambda: eventually(lambda: counts(first)["parked"] == 20))
        turns, seen = 0, []
        of = KeptRequests.of

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def noted(self: KeptRequests, run_id: str) -> list[Kept]:
            seen.append(turns)
            return of(self, run_id)

        monkeypatch.setattr(KeptRequests, "of", noted)
        others = asyncio.create_task(turn())
        assert await Life(log, AGENT, tmp_path).live(lambda: eventually(lambda: len(seen) >= 20))
        others.cancel()
        assert len(set(seen[:20])) == 20
