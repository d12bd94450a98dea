"""Runs in segments that are about people: the state and messages that a segment copies are sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from noesium_stream.client import Client
from noesium_stream.client.erasure import erase
from noesium_stream.client.erasure.survey import records_of
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import SystemClock
from noesium_stream.errors import RunFailedError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.sealing.seal import MAX_SUBJECTS, SUBJECT, subjects_of
from noesium_stream.event.standard import RunSignalled
from noesium_stream.kernel.segment_state import STARTED
from noesium_stream.log.port import EventLog
from noesium_stream.testing import Rehearsal
from tests.support.talking import Clerk
from tests.support.talks import Talker

WORDS = (
    "Lisbon on the Tagus",
    "a flat in Alfama",
    "third of December",
    "sardines at noon",
    "over the bridge",
)
OPERATOR = AgentRef("op", "client", "local", "i")


class Brief(Clerk):
    """A clerk whose segments have two turns."""

    segment_steps: ClassVar[int | None] = 4


async def readable(log: EventLog, words: tuple[str, ...] = WORDS) -> list[str]:
    """Where a word is readable: topic and type."""
    return [
        f"{record.topic} {record.event_type}"
        async for record in records_of(log)
        if any(word.encode() in record.value for word in words)
    ]


async def test_a_conversation_in_segments_is_erased_and_nothing_of_it_is_readable(tmp_path: Path) -> None:
    async with Rehearsal(Brief) as rehearsal:
        conversation = await rehearsal.client.start_conversation("clerk", user="ada", subject="user:ada")
        for word in WORDS:
            await conversation.process_user_message(f"call me {word}")
        await conversation.close()
        await conversation.run.result()
        started = [e async for e in conversation.run.events(follow=False) if e.event_type == STARTED]
        assert [event.payload["segment"] for event in started] == [2, 3]
        assert WORDS[3] in str(started[-1].payload["state"])
        assert await readable(rehearsal.log) == []
        run = await rehearsal.client.get_run(conversation.id)
        assert (await verify(run, agent_target(Brief, rehearsal.log))).is_same
        done = await erase(
            rehearsal.log, tmp_path, "user:ada", OPERATOR, SystemClock(), prove=True, words=WORDS
        )
        assert done.scanned is not None
        assert done.scanned.found == []
        assert (await run.info()).status == "completed"


async def test_who_goes_on_with_a_conversation_about_a_person_sends_sealed_messages() -> None:
    async with Rehearsal(Clerk) as rehearsal:
        begun = await rehearsal.client.start_conversation("clerk", user="ada", subject="user:ada")
        await begun.process_user_message(f"call me {WORDS[0]}")
        async with Client(rehearsal.log, agent_id="another") as client:
            resumed = await client.conversation(begun.id)
            await resumed.process_user_message(f"call me {WORDS[1]}")
            again = await client.conversation(begun.id)
            await again.undo()
            assert [turn.said for turn in again.view.turns] == [f"call me {word}" for word in WORDS[:2]]
            await again.close()
        await begun.run.result()
        assert await readable(rehearsal.log) == []


async def sent_by(rehearsal: Rehearsal, run: Any, word: str, subject: str) -> None:
    """A message to a run that is about somebody."""
    event = root_event(
        RunSignalled(run_id=run.id, name="message", value=word),
        OPERATOR,
        SystemClock(),
        correlation_id=run.id,
        partition_key=run.id,
        metadata={"to": "talker", SUBJECT: subject},
    )
    await rehearsal.log.append([event], topic=rehearsal.log.topology.inbox("talker"))


@pytest.mark.parametrize("about", [None, "user:ada"])
async def test_messages_that_a_segment_carries_over_stay_sealed_for_whom_they_are_about(
    about: str | None,
) -> None:
    """Messages about Bob wait when the first segment ends."""
    async with Rehearsal(Talker) as rehearsal:
        await rehearsal.crash(restart=False)
        run = await rehearsal.start({}, subject=about)
        for number in range(2):
            await run.signal("message", f"m{number}")
        for word in WORDS:
            await sent_by(rehearsal, run, word, "user:bob")
        await rehearsal.restart()
        started = await run.wait_for(STARTED)
        left = started.payload["carried"]["signals"]["message"]["left"]
        assert [one["payload"]["value"] for one in left] == list(WORDS)
        assert subjects_of(started) == (("user:bob",) if about is None else ("user:ada", "user:bob"))
        values = [one.value async for one in records_of(rehearsal.log) if one.event_type == STARTED]
        assert values
        assert not any(word.encode() in value for value in values[:1] for word in WORDS)
        rehearsal.log.decoder.sealer.keys.destroy("user:bob", 7)  # type: ignore[attr-defined]
        [again, *_] = [event for event in await run.history() if event.event_type == STARTED]
        assert not any(word in str(again.payload) for word in WORDS)


async def test_a_run_whose_messages_are_about_too_many_people_stays_in_its_segment() -> None:
    async with Rehearsal(Talker) as rehearsal:
        await rehearsal.crash(restart=False)
        run = await rehearsal.start({})
        for number in range(2):
            await run.signal("message", f"m{number}")
        for number in range(MAX_SUBJECTS + 1):
            await sent_by(rehearsal, run, f"w{number}", f"user:u{number}")
        await run.signal("message", "bye")
        await rehearsal.restart()
        assert len((await run.result())["answers"]) == 2 + MAX_SUBJECTS + 1 + 1
        segments = [event.payload["step"] for event in await run.history() if event.event_type == STARTED]
        assert segments[0] > 5


async def test_an_open_run_in_a_segment_that_is_erased_stops_nobody_else() -> None:
    async with Rehearsal(Talker) as rehearsal:
        run = await rehearsal.start({}, subject="user:ada")
        for number in range(3):
            await run.signal("message", f"m{number}")
        await run.wait_for("kernel.signal.awaited")
        await rehearsal.crash(restart=False)
        rehearsal.log.decoder.sealer.keys.destroy("user:ada", 7)  # type: ignore[attr-defined]
        await rehearsal.restart()
        other = await rehearsal.start({})
        await other.signal("message", "bye")
        assert (await other.result())["answers"] == ["1: BYE"]
        await run.signal("message", "on")
        with pytest.raises(RunFailedError, match="is erased"):
            await run.result()
