"""Records that owners refused, and how they get back into the flow: once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.operate import dead_letters as module
from noesium_stream.client.operate.dead_letters import DeadLetter, LetterDecider, dead_letters, place_of
from noesium_stream.clock import SystemClock
from noesium_stream.errors import DeadLetterError, LogUnavailableError, PermissionDeniedError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import DeadLetterRedriven, EventValidationFailed, RunRequested
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, LogWriter, Outgoing
from noesium_stream.log.prepare import Prepared, header_text
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S
from tests.support.stores import inject

ME = AgentRef("person", "client", "local", "1")
RUN = "019c0000-0000-7000-8000-00000000000a"


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


def worker(log: EventLog, home: Path) -> Worker:
    graph = StateGraph(dict)
    graph.add_node("quick", lambda state: {"done": True})
    graph.add_edge(START, "quick")
    return Worker(log, [agent_from_graph(graph, "sample")], home=home)


def command(run_id: str, *, agent_type: str = "sample") -> EventEnvelope:
    requested = RunRequested(run_id=run_id, agent_type=agent_type, input={})
    clock = SystemClock()
    trace = TraceContext(clock.token(16), clock.token(8))
    return requested.to_envelope(ME, trace, partition_key=run_id, metadata={"to": "sample"})


async def letters(log: EventLog, count: int) -> list[DeadLetter]:
    async with asyncio.timeout(PATIENCE_S):
        while len(found := await dead_letters(log)) < count:
            await asyncio.sleep(0.01)
    return found


async def decider(log: EventLog) -> LetterDecider:
    return await LetterDecider.opened(log, SystemClock(), ME)


async def misplaced(log: EventLog, *events: EventEnvelope) -> None:
    """Write events for a run under another one's key, which chooses another partition: they are refused."""
    sender = await log.writer("foreign")
    await sender.commit([Outgoing(event, log.topology.inbox("sample"), 0, "another") for event in events])
    await sender.close()


async def in_inbox(log: EventLog, event_id: str) -> int:
    inbox = log.topology.inbox("sample")
    found = [r.envelope.event_id async for r in log.read(inbox, {}, until=await log.end(inbox))]
    return found.count(event_id)


async def test_a_letter_is_sent_again_through_the_same_door_and_once(log: EventLog, tmp_path: Path) -> None:
    event = command(RUN)
    async with worker(log, tmp_path), Client(log) as client:
        await misplaced(log, event)
        (letter,) = await letters(log, 1)
        assert (letter.status, letter.event_id, letter.key) == ("open", event.event_id, RUN)
        assert letter.agent_type == "sample"
        deciding = await decider(log)
        (chosen,) = deciding.letters("sample", [])
        await deciding.redrive(chosen)
        assert (await client.run_handle("sample", RUN).result(timeout=PATIENCE_S))["done"]
        with pytest.raises(DeadLetterError, match="was redriven already"):
            deciding.letters("sample", [letter.position])
        assert deciding.letters("sample", []) == []
        await deciding.close()
        assert await in_inbox(log, event.event_id) == 2
        (letter,) = await letters(log, 1)
        assert letter.status == "redriven"
    trail = [r.envelope async for r in log.read(log.topology.dlq, {}, until=await log.end(log.topology.dlq))]
    redriven = next(one for one in trail if one.event_type == DeadLetterRedriven.TYPE)
    assert redriven.payload["redriven_by"] == "person"
    assert redriven.causation_id == event.event_id


async def test_who_decided_before_is_fenced_and_sends_nothing(log: EventLog, tmp_path: Path) -> None:
    event = command(RUN)
    async with worker(log, tmp_path):
        await misplaced(log, event)
        (letter,) = await letters(log, 1)
        slow = await decider(log)
        quick = await decider(log)
        await quick.redrive(letter)
        with pytest.raises(DeadLetterError, match="Somebody else decides"):
            await slow.redrive(letter)
        with pytest.raises(DeadLetterError, match="Somebody else decides"):
            await slow.drop(letter)
    assert await in_inbox(log, event.event_id) == 2


async def test_what_is_refused_again_is_a_new_letter(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path):
        await misplaced(log, command(RUN, agent_type="another"))
        (first,) = await letters(log, 1)
        deciding = await decider(log)
        await deciding.redrive(first)
        found = await letters(log, 2)
    assert [letter.status for letter in found] == ["redriven", "open"]
    assert "agents of type another" in found[1].reason


async def test_what_cannot_be_read_can_only_be_dropped(log: EventLog, tmp_path: Path) -> None:
    headers = header_text(command(RUN))
    inbox = log.topology.inbox("sample")
    async with worker(log, tmp_path):
        for value in (b"garbage", b"g" * 900_000):
            await inject(log, Prepared(inbox, 0, RUN, headers, (), value))
        garbage, large = await letters(log, 2)
        assert (garbage.event_type, garbage.whole, large.whole) == (None, True, False)
        deciding = await decider(log)
        with pytest.raises(DeadLetterError, match=r"cannot be sent again: .*inbox/0@"):
            await deciding.redrive(garbage)
        with pytest.raises(DeadLetterError, match="the beginning of its record alone"):
            await deciding.redrive(large)
        await deciding.drop(garbage, "noise")
        with pytest.raises(DeadLetterError, match="was dropped already"):
            deciding.letters("sample", [garbage.position])
        assert deciding.letters("sample", []) == [large]
        with pytest.raises(DeadLetterError, match=f"{place_of(large.position)} is no dead letter of"):
            deciding.letters("other", [large.position])
    assert [letter.status for letter in await dead_letters(log, "sample")] == ["dropped", "open"]
    assert await dead_letters(log, "other") == []


async def test_a_log_without_letters_has_none(log: EventLog) -> None:
    assert await dead_letters(log) == []


async def test_a_letter_goes_to_an_inbox_that_was_made_anew_and_is_shorter(
    log: EventLog, tmp_path: Path
) -> None:
    """Whose journal has the event was said in the old inbox: nobody waits for it to grow as long again."""
    event = command(RUN)
    async with worker(log, tmp_path):
        await misplaced(log, event)
        (letter,) = await letters(log, 1)
    inbox = log.topology.inbox("sample")
    end = (await log.end(inbox))[letter.position.partition]
    beyond = replace(letter, position=letter.position._replace(offset=end))
    deciding = await decider(log)
    async with asyncio.timeout(PATIENCE_S):
        await deciding.redrive(beyond)
    await deciding.close()
    assert await in_inbox(log, event.event_id) == 2


async def test_a_decider_that_cannot_read_leaves_no_writer_open(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_writers: set[LogWriter] = set()
    opened = log.writer

    async def writer(writer_id: str) -> LogWriter:
        found = await opened(writer_id)
        close = found.close
        open_writers.add(found)

        async def closing() -> None:
            open_writers.discard(found)
            await close()

        found.close = closing  # type: ignore[method-assign]
        return found

    async def away(log: EventLog) -> list[DeadLetter]:
        raise LogUnavailableError("nobody answers")

    monkeypatch.setattr(log, "writer", writer)
    monkeypatch.setattr(module, "dead_letters", away)
    with pytest.raises(LogUnavailableError):
        await decider(log)
    assert not open_writers


async def test_a_letter_of_an_inbox_that_was_made_anew_is_not_taken_for_the_one_that_lay_there_before(
    log: EventLog, tmp_path: Path
) -> None:
    async with worker(log, tmp_path):
        await misplaced(log, command(RUN))
        (first,) = await letters(log, 1)
    assert first.topic_id == await log.topic_id(first.position.topic)
    deciding = await decider(log)
    await deciding.drop(first)
    dlq = log.topology.dlq
    [refused] = [
        record.envelope
        async for record in log.read(dlq, {}, until=await log.end(dlq), types=(EventValidationFailed.TYPE,))
    ]
    again = EventValidationFailed(**{**refused.payload, "topic_id": "made anew"})
    clock = SystemClock()
    trace = TraceContext(clock.token(16), clock.token(8))
    await log.append([again.to_envelope(ME, trace, partition_key="partition-0", clock=clock)], topic=dlq)
    assert [letter.status for letter in await dead_letters(log)] == ["dropped", "open"]
    deciding = await decider(log)
    (open_one,) = deciding.letters("sample", [first.position])
    assert open_one.topic_id == "made anew"
    await deciding.drop(open_one)
    assert [letter.status for letter in await dead_letters(log)] == ["dropped", "dropped"]
    with pytest.raises(DeadLetterError, match="was dropped already"):
        deciding.letters("sample", [first.position])
    await deciding.close()


@pytest.mark.parametrize(
    ("may", "agents", "allowed"),
    [(["start"], ["*"], False), (["redrive"], ["other"], False), (["redrive"], ["*"], True)],
)
async def test_who_may_not_decide_by_the_policy_decides_nothing(
    tmp_path: Path, may: list[str], agents: list[str], allowed: bool
) -> None:
    policy = Policy.model_validate({"allow": [{"who": [ME.agent_id], "may": may, "agents": agents}]})
    log = await open_log("memory://?partitions=1")
    async with worker(log, tmp_path):
        await misplaced(log, command("run-1"))
        (letter,) = await letters(log, 1)
        deciding = await LetterDecider.opened(log, SystemClock(), ME, policy)
        if allowed:
            (found,) = deciding.letters("sample", [])
            await deciding.drop(found)
        else:
            with pytest.raises(PermissionDeniedError, match="may not decide about dead letters"):
                deciding.letters("sample", [letter.position])
        await deciding.close()
        status = "dropped" if allowed else "open"
        assert [one.status for one in await dead_letters(log)] == [status]
    await log.close()
