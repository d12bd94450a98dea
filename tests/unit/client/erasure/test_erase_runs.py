"""Runs that are about a person: nothing of them is readable on the log, and erased they stop nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import BaseGraphicAgent, BaseProjection, current_step
from noesium_stream.client.erasure import erase
from noesium_stream.client.erasure.survey import records_of
from noesium_stream.client.operate.fork import fork
from noesium_stream.client.operate.replay import recording, verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ErasureError
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.log.port import EventLog, Position
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.testing import Rehearsal

WORDS = ("Lisbon on the Tagus", "a flat in Alfama", "third of December", "sardines at noon")
OPERATOR = AgentRef("op", "client", "local", "i")


class Trip(TypedDict, total=False):
    place: str
    answer: str


class Planner(BaseGraphicAgent):
    """Plans a trip."""

    agent_type = "planner"

    def get_state_class(self) -> type[Trip]:
        return Trip

    def _build_graph(self) -> StateGraph[Any]:
        return StateGraph(Trip).add_node("plan", self.plan).add_edge(START, "plan")

    async def plan(self, trip: Trip) -> dict[str, Any]:
        step = current_step()
        if trip["place"] == "nowhere":
            return {"answer": "stay"}
        home = await step.effect("look", look, trip["place"])
        await step.write(f"found {home}")
        await self.memory.at("session").write("home", home)
        when = await step.interrupt(f"When do you want to be in {trip['place']}?")
        more = await step.signal("wish")
        return {"answer": f"{home}, {when.value}, {more}"}


def look(place: str) -> str:
    return f"{WORDS[1]} in {place}"


class Results(BaseProjection[int]):
    """A user's projection, which knows nothing of erased events."""

    name = "results"
    event_types = ("run.completed",)

    def key(self, event: EventEnvelope) -> str:
        return event.partition_key or ""

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + len(event.payload["result"]["answer"])


async def readable(log: EventLog) -> list[str]:
    """Where a word is readable: topic and type."""
    found = []
    async for record in records_of(log):
        if any(word.encode() in record.value for word in WORDS):
            found.append(f"{record.topic} {record.event_type}")
    return found


class Secretary(Planner):
    """An agent whose name, long enough to be looked for, is in what it keeps about a person."""

    agent_type = "secretary"

    def result(self, state: dict[str, Any]) -> Any:
        return {"answer": "stay", "by": "secretary"}


async def test_the_name_of_an_agent_is_no_text_of_a_person(tmp_path: Path) -> None:
    async with Rehearsal(Secretary) as rehearsal:
        run = await rehearsal.start({"place": "nowhere"}, subject="user:ada")
        assert (await run.result())["by"] == "secretary"
        done = await erase(
            rehearsal.log, tmp_path, "user:ada", OPERATOR, SystemClock(), prove=True, words=WORDS
        )
        assert done.scanned is not None
        assert done.scanned.found == []


async def planned(rehearsal: Rehearsal) -> Any:
    run = await rehearsal.start({"place": WORDS[0]}, subject="user:ada")
    await run.wait_for("approval.requested")
    await run.answer(WORDS[2])
    await run.wait_for("kernel.signal.awaited")
    return run


async def test_a_fork_of_a_run_about_a_person_is_sealed_as_well(tmp_path: Path) -> None:
    async with Rehearsal(Planner) as rehearsal:
        run = await planned(rehearsal)
        parent = await rehearsal.client.get_run(run.id)
        branch = await fork(rehearsal.client, parent, 0, {})
        async for event in branch.events():
            if event.event_type == "run.started":
                break
        assert await readable(rehearsal.log) == []
        await parent.cancel()
        await branch.cancel()


async def test_what_a_run_about_a_person_records_is_sealed_until_it_is_erased(tmp_path: Path) -> None:
    async with Rehearsal(Planner) as rehearsal:
        run = await planned(rehearsal)
        with pytest.raises(ErasureError, match="has not ended"):
            await erase(rehearsal.log, tmp_path, "user:ada", OPERATOR, SystemClock())
        await run.signal("wish", WORDS[3])
        answer = f"{WORDS[1]} in {WORDS[0]}, {WORDS[2]}, {WORDS[3]}"
        assert (await run.result())["answer"] == answer
        assert await readable(rehearsal.log) == []
        assert (await verify(run, agent_target(Planner, rehearsal.log))).is_same
        other = await rehearsal.start({"place": "nowhere"})
        assert (await other.result())["answer"] == "stay"

        done = await erase(
            rehearsal.log, tmp_path, "user:ada", OPERATOR, SystemClock(), prove=True, words=WORDS
        )
        assert done.scanned is not None
        assert done.scanned.found == []
        info = await run.info()
        assert (info.status, info.result) == ("completed", "erased")
        with pytest.raises(ErasureError, match="is erased"):
            await recording(run)
        assert (await verify(other, agent_target(Planner, rehearsal.log))).is_same
        await rehearsal.crash()
        third = await rehearsal.start({"place": "nowhere"})
        assert (await third.result())["answer"] == "stay"


async def test_a_worker_that_crashed_goes_on_with_sealed_records() -> None:
    async with Rehearsal(Planner) as rehearsal:
        rehearsal.crash_after("effect.completed")
        run = await planned(rehearsal)
        await run.signal("wish", WORDS[3])
        assert WORDS[3] in (await run.result())["answer"]
        assert rehearsal.call_count("look") == 1
        assert await readable(rehearsal.log) == []


async def test_a_message_that_was_sent_in_plain_is_found_and_sealed_in_the_journal(tmp_path: Path) -> None:
    async with Rehearsal(Planner) as rehearsal:
        run = await planned(rehearsal)
        old = await rehearsal.client.get_run(run.id)
        old._about = {}  # a release that did not ask whom the run is about
        await old.signal("wish", WORDS[3])
        await run.result()
        assert await readable(rehearsal.log) == ["noesium.agent.planner.inbox run.signalled"]
        with pytest.raises(ErasureError, match=r"inbox.*run\.signalled has 'sardines at noon'"):
            await erase(rehearsal.log, tmp_path, "user:ada", OPERATOR, SystemClock())


async def test_what_another_handle_sends_is_sealed_before_the_run_is_accepted_and_after(
    tmp_path: Path,
) -> None:
    async with Rehearsal(Planner) as rehearsal:
        await rehearsal.crash(restart=False)
        run = await rehearsal.start({"place": WORDS[0]}, subject="user:ada")
        early = await rehearsal.client.get_run(run.id)
        await early.signal("wish", WORDS[3])
        await rehearsal.restart()
        await run.wait_for("approval.requested")
        await (await rehearsal.client.get_run(run.id)).approve(value=WORDS[2])
        answer = f"{WORDS[1]} in {WORDS[0]}, {WORDS[2]}, {WORDS[3]}"
        assert (await run.result())["answer"] == answer
        assert await readable(rehearsal.log) == []
        await erase(rehearsal.log, tmp_path, "user:ada", OPERATOR, SystemClock(), prove=True, words=WORDS)
        await (await rehearsal.client.get_run(run.id)).cancel("too late")  # of somebody whose key is gone
        plain = await rehearsal.start({"place": "nowhere"})
        await (await rehearsal.client.get_run(plain.id)).signal("wish", "in plain")
        inbox = rehearsal.log.topology.inbox("planner")
        sent = [record async for record in records_of(rehearsal.log) if record.topic == inbox]
        in_plain = [record.event_type for record in sent if b"sealed" not in record.value]
        assert sorted(in_plain) == ["run.cancel.requested", "run.requested", "run.signalled"]


async def test_an_erased_command_starts_nothing_and_is_a_dead_letter(tmp_path: Path) -> None:
    async with Rehearsal(Planner) as rehearsal:
        await rehearsal.crash(restart=False)
        run = await rehearsal.start({"place": "nowhere"}, subject="user:ada")
        rehearsal.log.decoder.sealer.keys.destroy("user:ada", 7)  # type: ignore[union-attr]
        await rehearsal.restart()
        other = await rehearsal.start({"place": "nowhere"})
        await other.result()
        assert (await run.info()).status == "requested"


async def test_a_projection_passes_over_what_is_erased(tmp_path: Path) -> None:
    async with Rehearsal(Planner) as rehearsal:
        for subject in ("user:ada", None):
            run = await rehearsal.start({"place": "nowhere"}, subject=subject)
            await run.result()
        log = rehearsal.log
        log.decoder.sealer.keys.destroy("user:ada", 7)  # type: ignore[union-attr]
        ends = [one async for one in records_of(log) if one.event_type == "run.completed"]
        async with AttachedProjection(log, Results(), tmp_path) as attached:
            for end in ends:
                await attached.wait_for(Position(end.topic, end.partition, end.offset))
            attached.flush()
            found = {end.key: await attached.query(end.key) for end in ends}
            assert sorted(found.values(), key=str) == [4, None]
            assert all(not list(fold.letters()) for fold in attached.folds.values())
