"""What a worker cannot take and another one may is deferred, kept by the journal, and taken up by itself."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.operate.dead_letters import dead_letters
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ConfigError, RunCancelledError
from noesium_stream.event import DomainEvent, EventEnvelope, TraceContext, standard_catalogue
from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA, fingerprint
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.standard import Capability, CapabilityInvoked, ReplyTo
from noesium_stream.kernel import current_step
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.prepare import Prepared, header_text
from noesium_stream.log.sqlite.store import open_sqlite
from noesium_stream.log.topics import Topology
from noesium_stream.log.url import parse_url
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.open_runs import OpenRuns
from tests.support.invariants import Asked, broken, read_book
from tests.support.lives import NEVER, Life
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.support.stores import inject
from tests.unit.client.operate.test_dead_letters import ME

RUN = "019c0000-0000-7000-8000-00000000000a"
OTHER = "019c0000-0000-7000-8000-00000000000b"
BODIES: Counter[str] = Counter()


class Requested(DomainEvent, event_type="run.requested", version="2.0.0"):
    """The command of a release to come; what older ones make of it is what they know."""

    run_id: str
    agent_type: str
    input: dict[str, Any]
    tenant: str


class Signalled(DomainEvent, event_type="run.signalled", version="2.0.0"):
    """A signal of a release to come."""

    run_id: str
    name: str
    value: Any
    tenant: str


class Nudged(DomainEvent, event_type="run.nudged"):
    run_id: str


async def say(state: dict[str, Any]) -> dict[str, Any]:
    BODIES[str(state.get("n"))] += 1
    return {"said": state.get("n")}


async def wait(state: dict[str, Any]) -> dict[str, Any]:
    return {"heard": await current_step().signal("go")}


SAY = StateGraph(dict).add_node(say).add_edge(START, "say")
WAIT = StateGraph(dict).add_node(wait).add_edge(START, "wait")
OLD = agent_from_graph(SAY)
KNOWING = agent_from_graph(SAY, version="1.1.0", events=(Requested,))
OLD_WAITING = agent_from_graph(WAIT)
OLD_WAITING_KNOWING = agent_from_graph(WAIT, events=(Signalled,))
WAITING = agent_from_graph(WAIT, version="1.1.0", events=(Requested,))


@pytest.fixture
async def url(tmp_path: Path) -> str:
    BODIES.clear()
    return f"sqlite:///{tmp_path}/log.db?partitions=1"


@pytest.fixture
async def log(url: str) -> AsyncIterator[EventLog]:
    """Who asks: a program of the release to come."""
    catalogue = standard_catalogue()
    for event in (Requested, Nudged):
        catalogue.register(event)
    log = await open_log(url, catalogue=catalogue)
    topology = log.topology
    await log.ensure_topics(
        [topology.spec(topology.inbox("sample")), topology.spec(topology.journal("sample"))]
    )
    yield log
    await log.close()


class Process:
    """A worker with a log of its own, which knows what its agents know."""

    def __init__(self, url: str, home: Path, new: Any, *also: Any, schemas: Sequence[Any] = ()) -> None:
        self._url, self._home, self._schemas = url, home, schemas
        self._agents = [new], also
        self.said: list[str] = []

    async def __aenter__(self) -> Process:
        parsed, codec = parse_url(self._url), EnvelopeCodec(writer_schemas=self._schemas)
        self.log: Any = await open_sqlite(parsed, parsed.topology(Topology()), codec, SystemClock())
        agents, also = self._agents
        self.worker = Worker(
            self.log, agents, other_versions=also, home=self._home, progress=self.said.append
        )
        await self.worker.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.worker.close()
        await self.log.close()


def envelope(event: DomainEvent, run_id: str) -> EventEnvelope:
    clock = SystemClock()
    trace = TraceContext(clock.token(16), clock.token(8))
    return event.to_envelope(ME, trace, partition_key=run_id, metadata={"to": "sample"})


def requested(run_id: str, n: int = 1) -> EventEnvelope:
    event = Requested(run_id=run_id, agent_type="sample", input={"n": n}, tenant="t")
    return envelope(event, run_id)


async def infos(client: Client) -> dict[str, Any]:
    return {info.run_id: info for info in await client.list_runs()}


async def is_deferred(client: Client, run_id: str = RUN) -> bool:
    info = (await infos(client)).get(run_id)
    return info is not None and info.status == "deferred"


async def has_begun(run: Any) -> bool:
    return "kernel.node.entered" in [event.event_type async for event in run.events(follow=False)]


async def no_faults(log: EventLog, *run_ids: str) -> None:
    book = await read_book(log, ["sample"])
    assert broken(book, [Asked(run_id, "sample") for run_id in run_ids], []) == []


async def test_a_command_of_an_unknown_version_waits_and_is_taken_up_by_a_worker_that_knows_it(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    async with Client(log) as client:
        async with Process(url, tmp_path, OLD) as old:
            await log.append([requested(RUN)])
            await eventually(lambda: is_deferred(client))
            info = (await infos(client))[RUN]
            assert "run.requested 2.0.0 has a major version that is not known here" in info.reason
            said = "is deferred: it waits for a worker that knows its schema"
            await eventually(lambda: any(said in line for line in old.said))
            other = await client.start("sample", {"n": 2})
            assert (await other.result(timeout=PATIENCE_S))["said"] == 2  # it stands in nobody's way
            assert await is_deferred(client)
        async with Process(url, tmp_path, KNOWING):
            run = client.run_handle("sample", RUN)
            assert await run.result(timeout=PATIENCE_S) == {"said": 1}
            assert (await run.info()).status == "completed"
        assert BODIES == {"1": 1, "2": 1}
        await no_faults(log, RUN, other.id)
        assert await dead_letters(log) == []


async def test_what_is_deferred_survives_takeovers_and_the_loss_of_all_files(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    async with Client(log) as client:
        async with Process(url, tmp_path, OLD):
            await log.append([requested(RUN)])
            await eventually(lambda: is_deferred(client))
        for _ in range(2):
            shutil.rmtree(tmp_path / "worker")
            async with Process(url, tmp_path, OLD):
                run = await client.start("sample", {"n": 2})
                await run.result(timeout=PATIENCE_S)
                assert await is_deferred(client)
        shutil.rmtree(tmp_path / "worker")
        async with Process(url, tmp_path, KNOWING):
            assert (await client.run_handle("sample", RUN).result(timeout=PATIENCE_S))["said"] == 1
        journal = log.topology.journal("sample")
        types = Counter([r.event_type async for r in log.read(journal, {}, until=await log.end(journal))])
        assert types["request.parked"] == types["request.resumed"] == 1
        await no_faults(log, RUN)


async def test_the_inbox_need_not_keep_what_is_deferred(log: EventLog, url: str, tmp_path: Path) -> None:
    async with Client(log) as client, Process(url, tmp_path, OLD) as old:
        await log.append([requested(RUN)])
        await eventually(lambda: is_deferred(client))
        [owner] = old.worker.tenures()
        await eventually(lambda: owner.keeper.state.low_water == 1)


async def test_what_is_sent_to_a_deferred_run_waits_behind_its_command_in_order(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    async with Client(log) as client:
        run = client.run_handle("sample", RUN)
        async with Process(url, tmp_path, OLD_WAITING):
            await log.append([requested(RUN)])
            await eventually(lambda: is_deferred(client))
            await run.signal("go", "first")
            await run.signal("go", "second")
            last = await client.start("sample", {"n": 2})  # what came before is decided on when it has begun
            await last.signal("go", "x")
            await last.result(timeout=PATIENCE_S)
        shutil.rmtree(tmp_path / "worker")
        async with Process(url, tmp_path, WAITING):
            assert (await run.result(timeout=PATIENCE_S))["heard"] == "first"
        types = [event.event_type async for event in run.events(follow=False)]
        assert types.count("run.signalled") == 2
        await no_faults(log, RUN)


async def test_what_is_deferred_for_an_open_run_is_not_lost_where_its_owner_leaves_while_it_is_read_back(
    log: EventLog, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = asyncio.Event()

    async def for_ever(owner: OpenRuns, run_ids: Collection[str]) -> Any:
        reading.set()
        await asyncio.Event().wait()

    signal = Signalled(run_id=RUN, name="go", value="heard", tenant="t")
    log.catalogue.register(Signalled)
    async with Client(log) as client:
        async with Process(url, tmp_path, OLD_WAITING):
            run = await client.start("sample", {"n": 1})
            await eventually(lambda: has_begun(run))
            await log.append([envelope(signal.model_copy(update={"run_id": run.id}), run.id)])
            await eventually(lambda: _kept(log))
        with monkeypatch.context() as patched:
            patched.setattr(OpenRuns, "read_runs", for_ever)
            async with Process(url, tmp_path, OLD_WAITING_KNOWING):
                await reading.wait()
        async with Process(url, tmp_path, OLD_WAITING_KNOWING):
            assert (await run.result(timeout=PATIENCE_S))["heard"] == "heard"


async def _kept(log: EventLog) -> bool:
    journal = log.topology.journal("sample")
    return any(record.event_type == "request.parked" for record in await stored(log, journal))


async def test_a_command_of_an_unknown_avro_schema_waits_for_a_worker_that_has_it(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    field = {"name": "priority", "type": "int", "default": 0}
    newer = {**ENVELOPE_SCHEMA, "fields": [*ENVELOPE_SCHEMA["fields"], field]}
    number = fingerprint(newer)
    data = EnvelopeCodec(log.catalogue).encode(requested(RUN))
    await write(log, data[:2] + number.to_bytes(8, "little") + data[10:] + b"\x0e")
    async with Client(log) as client:
        async with Process(url, tmp_path, KNOWING):
            await eventually(lambda: is_deferred(client))
            assert f"the writer schema {number:016x} is not known here" in (await infos(client))[RUN].reason
        async with Process(url, tmp_path, KNOWING, schemas=[newer]):
            assert (await client.run_handle("sample", RUN).result(timeout=PATIENCE_S))["said"] == 1


async def write(log: EventLog, value: bytes) -> None:
    """Put bytes into the inbox, as foreign programs can."""
    prepared = Prepared(log.topology.inbox("sample"), 0, RUN, header_text(requested(RUN)), (), value)
    await inject(log, prepared)


async def test_a_run_that_is_cancelled_while_its_command_cannot_be_read_ends_as_a_dead_letter(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    async with Client(log) as client:
        run = client.run_handle("sample", RUN)
        async with Process(url, tmp_path, OLD):
            await log.append([requested(RUN)])
            await run.cancel("nobody needs it")
            await eventually(lambda: dead_letters(log))
            (letter,) = await dead_letters(log)
            assert letter.reason.startswith("value: the run was cancelled, and")
            assert letter.position.topic == log.topology.inbox("sample")
            assert (await run.info()).status == "failed"
        async with Process(url, tmp_path, KNOWING):
            other = await client.start("sample", {"n": 2})
            await other.result(timeout=PATIENCE_S)
        assert BODIES == {"2": 1}


async def test_a_command_for_a_version_that_nobody_carries_waits_for_it(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    async with Client(log) as client:
        async with Process(url, tmp_path, OLD):
            run = await client.start("sample", {"n": 1}, version="^1.1")
            await eventually(lambda: is_deferred(client, run.id))
            info = (await infos(client))[run.id]
            assert info.reason == "it waits for a worker that carries version ^1.1 of sample"
            now = await client.start("sample", {"n": 2}, version="~1.0")
            await now.result(timeout=PATIENCE_S)
        async with Process(url, tmp_path, OLD, KNOWING):
            assert (await run.result(timeout=PATIENCE_S))["said"] == 1
        assert (await run.info()).agent_version == "1.1.0"
        assert (await now.info()).agent_version == "1.0.0"
        await no_faults(log, run.id, now.id)


async def test_a_run_that_waits_for_its_version_can_be_cancelled(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    async with Client(log) as client, Process(url, tmp_path, OLD):
        run = await client.start("sample", {"n": 1}, version="2.0.0")
        await eventually(lambda: is_deferred(client, run.id))
        await run.cancel("never mind")
        with pytest.raises(RunCancelledError, match="never mind"):
            await run.result(timeout=PATIENCE_S)
        again = await client.start("sample", {"n": 1}, version="2.0.0")
        await again.cancel("at once")  # both may come in together
        with pytest.raises(RunCancelledError, match="at once"):
            await again.result(timeout=PATIENCE_S)
        assert BODIES == {}
        await no_faults(log, run.id, again.id)


async def test_a_version_range_that_cannot_be_read_is_refused_by_the_client(log: EventLog) -> None:
    async with Client(log) as client:
        with pytest.raises(ConfigError, match="not a version range"):
            await client.start("sample", {}, version="newest")


@pytest.mark.parametrize(("wanted", "waits"), [("1.0.0", False), ("1.2.0", True), ("2.0.0", True)])
async def test_a_call_begins_with_a_version_that_offers_what_was_chosen(
    log: EventLog, url: str, tmp_path: Path, wanted: str, waits: bool
) -> None:
    def offering(agent_version: str, version: str) -> Any:
        offered = Capability(id="text.say", version=version, input_schema={}, output_schema={})
        return agent_from_graph(SAY, version=agent_version, capabilities=(offered,))

    asked = CapabilityInvoked(
        run_id=RUN,
        capability_id="text.say",
        version=wanted,
        caller_agent_id="caller",
        caller_run_id=OTHER,
        target_agent_id="sample",
        target_agent_type="sample",
        registry_offset=0,
        input={"n": 1},
        reply_to=ReplyTo(agent_type="caller", run_id=OTHER, call_id=RUN),
    )
    await log.append([envelope(asked, RUN)])
    async with Client(log) as client:
        run = client.run_handle("sample", RUN)
        async with Process(url, tmp_path, offering("1.0.0", "1.1.0")):
            if waits:
                await eventually(lambda: is_deferred(client))
                assert f"text.say {wanted}" in (await infos(client))[RUN].reason
            else:
                await run.result(timeout=PATIENCE_S)
        async with Process(url, tmp_path, offering("3.0.0", "2.1.0"), offering("2.0.0", "1.2.0")):
            await run.result(timeout=PATIENCE_S)
        found = (await run.info()).agent_version
        assert found == {"1.0.0": "1.0.0", "1.2.0": "2.0.0", "2.0.0": "3.0.0"}[wanted]


async def test_a_message_of_an_unknown_type_waits_and_the_run_goes_on(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    async with Client(log) as client:
        async with Process(url, tmp_path, OLD_WAITING):
            run = await client.start("sample", {})
            await eventually(lambda: has_begun(run))
            await log.append([envelope(Nudged(run_id=run.id), run.id)])
            await run.signal("go", "on")
            assert (await run.result(timeout=PATIENCE_S))["heard"] == "on"
            assert (await run.info()).status == "completed"
        async with Process(url, tmp_path, OLD_WAITING):  # which drops it: its run has ended
            last = await client.start("sample", {})
            await last.signal("go", "x")
            await last.result(timeout=PATIENCE_S)
        journal = log.topology.journal("sample")
        types = Counter([r.event_type async for r in log.read(journal, {}, until=await log.end(journal))])
        assert types["request.parked"] == types["request.resumed"] == 1
        assert await dead_letters(log) == []


async def test_bytes_that_are_no_event_are_a_dead_letter_at_once(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    await write(log, b"hello")
    async with Process(url, tmp_path, OLD):
        await eventually(lambda: dead_letters(log))
        (letter,) = await dead_letters(log)
        assert letter.value == b"hello"


async def test_a_large_command_is_kept_whole(log: EventLog, url: str, tmp_path: Path) -> None:
    event = Requested(run_id=RUN, agent_type="sample", input={"n": 1, "text": "x" * 900_000}, tenant="t")
    async with Client(log) as client:
        async with Process(url, tmp_path, OLD):
            await log.append([envelope(event, RUN)])
            await eventually(lambda: is_deferred(client))
        shutil.rmtree(tmp_path / "worker")
        async with Process(url, tmp_path, KNOWING):
            run = client.run_handle("sample", RUN)
            await run.result(timeout=PATIENCE_S)
            asked = await anext(run.events(follow=False))
        assert asked.payload["input"] == event.input


async def test_a_command_that_can_be_read_takes_along_what_was_deferred_for_its_run(
    log: EventLog, url: str, tmp_path: Path
) -> None:
    async with Client(log) as client:
        async with Process(url, tmp_path, OLD_WAITING):
            await log.append([requested(RUN)])
            await eventually(lambda: is_deferred(client))
            run = client.run_handle("sample", RUN)
            await run.signal("go", "kept")
            inbox = log.topology.inbox("sample")
            plain = await client.start("sample", {})
            again = [r.envelope async for r in log.read(inbox, {}, until=await log.end(inbox))][-1]
            payload = {**again.payload, "run_id": RUN}
            await log.append(
                [again.replace(partition_key=RUN, payload=payload, event_id=SystemClock().uuid7())]
            )
            assert (await run.result(timeout=PATIENCE_S))["heard"] == "kept"
            await plain.signal("go", "x")
            await plain.result(timeout=PATIENCE_S)
        async with Process(url, tmp_path, WAITING):
            last = await client.start("sample", {})
            await last.signal("go", "x")
            await last.result(timeout=PATIENCE_S)
        types = [event.event_type async for event in run.events(follow=False)]
        assert types.count("run.requested") == types.count("run.started") == 1


@pytest.mark.parametrize("reaches_log", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
@pytest.mark.parametrize("knows", [False, True])
async def test_who_dies_while_requests_are_deferred_or_taken_loses_and_repeats_nothing(
    tmp_path: Path, at: int, reaches_log: bool, knows: bool
) -> None:
    BODIES.clear()
    log = await open_log("memory://?partitions=1")
    old, new = agent_from_graph(WAIT), agent_from_graph(WAIT, version="1.1.0")

    async def deferred_twice() -> bool:
        journal = log.topology.journal("sample")
        found = log.read(journal, {}, until=await log.end(journal), types=("request.parked",))
        return len([record async for record in found]) >= 2

    async def deferred_all() -> None:
        await eventually(deferred_twice)

    async def ended() -> None:
        assert (await run.result())["heard"] == "first"

    async with Client(log) as client:
        run = await client.start("sample", {}, version="^1.1")
        await run.signal("go", "first")
        # One of the two lives is cut off: of the worker that parks them, or of the one that takes them.
        dies = Life(log, old, tmp_path, dies_at=NEVER if knows else at, reaches_log=reaches_log)
        await asyncio.wait_for(dies.live(deferred_all), PATIENCE_S)
        if not knows:
            await asyncio.wait_for(Life(log, old, tmp_path).live(deferred_all), PATIENCE_S)
        last = Life(log, new, tmp_path, dies_at=at if knows else NEVER, reaches_log=reaches_log)
        if not await asyncio.wait_for(last.live(ended), PATIENCE_S):
            assert await asyncio.wait_for(Life(log, new, tmp_path).live(ended), PATIENCE_S)
        await no_faults(log, run.id)
        journal = log.topology.journal("sample")
        types = Counter([r.event_type async for r in log.read(journal, {}, until=await log.end(journal))])
        assert types["request.parked"] == 2
        assert types["run.signalled"] == types["run.completed"] == 1
    await log.close()
