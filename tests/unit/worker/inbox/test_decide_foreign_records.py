"""What foreign programs may write into an inbox never ends the worker that owns it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.operate.dead_letters import dead_letters
from noesium_stream.clock import SystemClock
from noesium_stream.event import EventEnvelope, TraceContext, standard_catalogue
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.standard import RunRequested
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.headers import LATEST_MS
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES, Prepared, header_text
from noesium_stream.log.record import Record
from noesium_stream.worker import Worker
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.decide import COPY_BYTES
from noesium_stream.worker.inbox.journal_records import deferred
from noesium_stream.worker.inbox.successor import Successor
from noesium_stream.worker.runs.slots import MAX_KEY_LENGTH, fairness_key
from noesium_stream.worker.state.command_queue import CommandQueue
from noesium_stream.worker.state.known_runs import Bounds
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.state_file import Identity, StateFile
from tests.support.reading import PATIENCE_S, eventually
from tests.support.stores import inject
from tests.unit.client.operate.test_dead_letters import ME

RUN = "019c0000-0000-7000-8000-00000000000a"
CODEC = EnvelopeCodec(standard_catalogue())


async def say(state: dict[str, Any]) -> dict[str, Any]:
    return {"said": state.get("n")}


AGENT = agent_from_graph(StateGraph(dict).add_node(say).add_edge(START, "say"))


def command(run_id: str = RUN, **fields: Any) -> EventEnvelope:
    clock = SystemClock()
    asked = RunRequested(run_id=run_id, agent_type="sample", input={"n": 1})
    trace = TraceContext(clock.token(16), clock.token(8))
    envelope = asked.to_envelope(ME, trace, partition_key=run_id, metadata={"to": "sample"})
    return envelope.replace(payload={**envelope.payload, **fields})


async def write(log: EventLog, event: EventEnvelope, *headers: tuple[str, bytes]) -> None:
    inbox, key = log.topology.inbox("sample"), event.partition_key or ""
    prepared = Prepared(inbox, 0, key, header_text(event), headers, CODEC.encode(event))
    await inject(log, prepared)


def encoded(event: EventEnvelope) -> bytes:
    """The event's bytes, whatever its payload is: as of a program that checks nothing."""
    codec = EnvelopeCodec(standard_catalogue())
    codec._validate = lambda event: None
    return codec.encode(event)


async def goes_on(log: EventLog, home: Path, letters: int) -> list[str]:
    """A worker deals with what lies there, and with what comes after it; what became of that."""
    async with Worker(log, [AGENT], home=home) as worker, Client(log) as client:
        work = asyncio.ensure_future(worker.wait())
        run = await client.start("sample", {"n": 2})
        assert (await run.result(timeout=PATIENCE_S))["said"] == 2
        assert not work.done()
        work.cancel()

        async def told() -> bool:
            return len(await dead_letters(log)) == letters

        await eventually(told)
    async with Worker(log, [AGENT], home=home / "anew"), Client(log) as client:
        run = await client.start("sample", {"n": 3})
        assert (await run.result(timeout=PATIENCE_S))["said"] == 3
    return [letter.reason for letter in await dead_letters(log)]


@pytest.fixture
async def log(tmp_path: Path) -> Any:
    log = await open_log("memory://?partitions=1")
    topology = log.topology
    names = [topology.inbox("sample"), topology.journal("sample"), topology.dlq]
    await log.ensure_topics([topology.spec(name) for name in names])
    yield log
    await log.close()


async def test_a_deadline_may_be_written_as_a_float(log: EventLog, tmp_path: Path) -> None:
    await write(log, command(deadline_ms=32_503_680_000_000.0))
    assert await goes_on(log, tmp_path, 0) == []
    async with Client(log) as client:
        assert (await client.run_handle("sample", RUN).result(timeout=PATIENCE_S))["said"] == 1


async def test_a_deadline_that_no_clock_can_show_is_refused(log: EventLog, tmp_path: Path) -> None:
    await write(log, command(deadline_ms=2.0**53 - 1))
    (reason,) = await goes_on(log, tmp_path, 1)
    assert reason == "payload.deadline_ms: is behind the year 9999"
    assert LATEST_MS < 2.0**53


async def test_a_fork_at_a_step_that_no_run_can_have_is_refused(log: EventLog, tmp_path: Path) -> None:
    event = command(fork={"run_id": RUN, "step": 1e300})
    await inject(log, Prepared(log.topology.inbox("sample"), 0, RUN, header_text(event), (), encoded(event)))
    (reason,) = await goes_on(log, tmp_path, 1)
    assert "payload.fork" in reason


async def test_a_header_that_no_copy_can_hold_is_refused(log: EventLog, tmp_path: Path) -> None:
    size = MAX_JOURNAL_BYTES - COPY_BYTES - len(RUN)
    filled = command(input={"n": "x" * (size - len(CODEC.encode(command(input={"n": ""}))) - 10)})
    await write(log, filled, ("noesium_origin", b"x" * 14_000))
    (reason,) = await goes_on(log, tmp_path, 1)
    assert reason.startswith("header noesium_origin")


async def test_what_cannot_be_kept_for_its_headers_is_a_dead_letter(log: EventLog, tmp_path: Path) -> None:
    asked = command(agent_version="^7.0", input={"n": "x" * 600_000})
    await write(log, asked, ("foreign", b"\xff" * 300_000))
    (reason,) = await goes_on(log, tmp_path, 1)
    assert "headers" in reason


async def test_what_has_neither_headers_nor_an_event_is_no_news_of_a_growth() -> None:
    successor = Successor(None, None, None, lambda: None, None)  # type: ignore[arg-type]
    garbage = [
        Record("inbox", 0, 0, 0, "", [], b"hello", CODEC),
        Record("inbox", 0, 1, 0, "", [("ce_type", b"\xff\xfe")], b"hello", CODEC),
    ]
    await successor.prepare(garbage)
    assert successor.partitions is None


async def test_a_header_without_a_value_waits_and_is_kept_as_an_empty_one(log: EventLog) -> None:
    headers: Any = [("foreign", None), ("other", b"\xff")]
    record = Record("inbox", 0, 0, 0, RUN, headers, CODEC.encode(command()), CODEC)
    state = PartitionState(StateFile.in_memory(Identity("journal", "id", 0)), "inbox", Bounds())
    waiting = CommandQueue(state, "inbox", 0, CODEC)
    waiting.put(record, "key:a")
    assert waiting.next_ones(1)[0][0].record.headers == [("foreign", b""), ("other", b"\xff")]

    context = PartitionContext(log, SystemClock(), ME, 0, "inbox", "journal", 0, "partition-0")
    (said,) = deferred(context, record, "why")
    assert said.envelope.payload["headers"][0] == ["foreign", ""]


@pytest.mark.parametrize(
    "given", ["\x00" * MAX_KEY_LENGTH, "😀" * MAX_KEY_LENGTH, "x" * (MAX_KEY_LENGTH + 1)]
)
def test_a_fairness_key_takes_little_room_in_a_header(given: str) -> None:
    event = command()
    key = fairness_key(event.replace(metadata={**event.metadata, "fairness_key": given}))
    assert key.startswith("key:")
    assert len(key) == len("key:") + 64
