"""A run in segments: the same run as one without, read back at the cost of its last segment."""

from __future__ import annotations

import dataclasses
import operator
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.cli.drawing import draw
from noesium_stream.client import Client, Run
from noesium_stream.client.operate.fork import fork
from noesium_stream.client.operate.replay import recording, state_at, verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.errors import CommitUnknownError, ConfigError, LogUnavailableError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import RunSignalled
from noesium_stream.kernel import Durability, RunHistory, current_step, kernel_compensation
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.segment_state import STARTED
from noesium_stream.kernel.verify.verifier import verify_run
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.port import Outgoing
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.run_session import RunSession
from tests.support.failing import FailingLog
from tests.support.reading import PATIENCE_S, eventually
from tests.support.striking import strike_at
from tests.support.talks import Talker

WORDS = [f"m{number}" for number in range(9)]
ANSWERS = [f"{number}: {word}".upper() for number, word in enumerate([*WORDS, "bye"], 1)]


class Whole(Talker):
    """The same in one segment."""

    segment_steps: ClassVar[int | None] = None


@pytest.fixture(autouse=True)
def _clean() -> None:
    Talker.called.clear()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=1")
    yield log
    await log.close()


async def turns(run: Run, count: int) -> None:
    """Return when so many turns are done, and the next one is waited for."""

    async def done() -> bool:
        events = [event async for event in run.events(follow=False)]
        answered = sum(
            e.payload.get("node") == "answer" for e in events if e.event_type.endswith("node.completed")
        )
        entered = [e.payload["node"] for e in events if e.event_type == "kernel.node.entered"]
        return answered == count and entered[-1] == "listen"

    await eventually(done)


async def events_of(run: Run) -> list[EventEnvelope]:
    return [event async for event in run.events(follow=False)]


async def talked(log: EventLog, home: Path, kind: type[Talker] = Talker) -> Run:
    """A run of ten turns, by two workers one after the other."""
    async with Client(log) as client:
        async with Worker(log, [kind], home=home / "1"):
            run = await client.start("talker", {})
            for word in WORDS[:6]:
                await run.signal("message", word)
            await turns(run, 6)
        async with Worker(log, [kind], home=home / "2"):
            for word in [*WORDS[6:], "bye"]:
                await run.signal("message", word)
            assert await run.result(timeout=PATIENCE_S) == {"answers": ANSWERS}
        return run


async def test_a_run_in_segments_is_the_run_that_it_is_without(log: EventLog, tmp_path: Path) -> None:
    run = await talked(log, tmp_path)
    assert set(Talker.called.values()) == {1}
    events = await events_of(run)
    segments = [event.payload for event in events if event.event_type == STARTED]
    assert [(one["segment"], one["step"], one["next"]) for one in segments] == [
        (number, 4 * number - 3, ["listen"]) for number in range(2, 6)
    ]
    assert [one["state"]["answers"] for one in segments] == [ANSWERS[:count] for count in (2, 4, 6, 8)]
    assert [one["carried"]["notes"] for one in segments] == [{"count": count} for count in (2, 4, 6, 8)]
    async with Client(log) as client:
        info = (await client.list_runs(where="turns = 10"))[0]
        assert (info.run_id, info.status) == (run.id, "completed")
        tree = causal_tree(run.id, events)
        shown = "\n".join(str(line) for line in draw(tree))
        assert "segment 2 begins with step 5" in shown
        assert shown.count("answer") >= 10


async def test_the_beginning_of_a_segment_is_one_commit_with_the_end_of_its_step(
    log: EventLog, tmp_path: Path
) -> None:
    run = await talked(log, tmp_path)
    journal = log.topology.journal("talker")
    commits: dict[bytes, list[str]] = {}
    async for record in log.read(journal, {}, until=await log.end(journal)):
        if record.key == run.id:
            commit = next(value for name, value in record.headers if name == "noesium_commit")
            commits.setdefault(commit.split(b":")[0], []).append(record.event_type)
    with_start = [types for types in commits.values() if STARTED in types]
    assert len(with_start) == 4
    for types in with_start:
        assert types.index(STARTED) == types.index("kernel.checkpoint.created") + 1


async def test_a_worker_reads_the_last_segment_alone(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed: list[str] = []
    replay = RunSession.replay

    def counted(session: RunSession, event: EventEnvelope) -> None:
        replayed.append(event.event_type)
        replay(session, event)

    monkeypatch.setattr(RunSession, "replay", counted)
    async with Client(log) as client:
        async with Worker(log, [Talker], home=tmp_path / "1"):
            run = await client.start("talker", {})
            for number in range(21):
                await run.signal("message", str(number))
            await turns(run, 21)
        events = [event.event_type for event in await events_of(run)]
        for home in ("1", "2"):  # with the state file, and folded anew
            replayed.clear()
            async with Worker(log, [Talker], home=tmp_path / home):
                await run.signal("message", f"again {home}")
                await turns(run, 22 if home == "1" else 23)
            last = len(events) - max(i for i, one in enumerate(events) if one == STARTED)
            assert replayed[:3] == ["run.requested", "run.started", STARTED]
            assert len(replayed) == 2 + last
            events = [event.event_type for event in await events_of(run)]
        await run.cancel()


def facts(history: RunHistory) -> dict[str, Any]:
    """All that a history says; the count of records and the way to them aside."""
    found = {field.name: getattr(history, field.name) for field in dataclasses.fields(history)}
    del found["records"]
    found["provenance"] = (history.provenance.everywhere, history.provenance.said, history.provenance.steps)
    return found


async def test_the_history_from_a_segments_beginning_is_the_whole_one(log: EventLog, tmp_path: Path) -> None:
    events = await events_of(await talked(log, tmp_path))
    starts = [index for index, event in enumerate(events) if event.event_type == STARTED]
    for position in range(starts[0] + 1, len(events) + 1):
        whole, tail = RunHistory(), RunHistory()
        for event in events[:position]:
            whole.apply(event)
        first = max(start for start in starts if start < position)
        for event in (*events[:2], *events[first:position]):
            tail.apply(event)
        assert facts(tail) == facts(whole)


async def test_each_segment_is_verified_against_the_state_that_it_began_with(
    log: EventLog, tmp_path: Path
) -> None:
    run = await talked(log, tmp_path)
    Talker.called.clear()
    target = agent_target(Talker, log)
    verdict = await verify(run, target)
    assert (verdict.difference, verdict.steps) == (None, 20)
    assert not Talker.called
    recorded = await recording(run)
    changed = await verify_run(target, with_state(recorded, 3, {"heard": 99}), lambda version, span: True)
    assert changed.difference is not None
    assert changed.difference.what == "the beginning of segment 3 differs at state.heard"


def with_state(run: RecordedRun, segment: int, state: dict[str, Any]) -> RecordedRun:
    """The run with another state in the beginning of a segment."""
    events = list(run.events)
    for index, item in enumerate(events):
        payload = item.event.payload
        if item.event.event_type == STARTED and payload["segment"] == segment:
            event = item.event.replace(payload={**payload, "state": {**payload["state"], **state}})
            events[index] = dataclasses.replace(item, event=event)
    return dataclasses.replace(run, events=tuple(events))


@pytest.mark.parametrize("step", [2, 4, 5, 8, 15])
async def test_a_run_is_forked_in_each_of_its_segments(log: EventLog, tmp_path: Path, step: int) -> None:
    run = await talked(log, tmp_path)
    target = agent_target(Talker, log)
    state = await state_at(target, await recording(run), step)
    assert state["answers"] == ANSWERS[: step // 2]
    async with Client(log) as client, Worker(log, [Talker], home=tmp_path / "3"):
        made = await fork(client, run, step, {"answers": ["other"]}, target)
        await made.signal("message", "bye")
        result = await made.result(timeout=PATIENCE_S)
        assert result["answers"][0] == "other"
        assert result["answers"][-1].endswith(": BYE")
        assert (await verify(made, target)).difference is None


async def test_a_repeated_signal_is_none_though_the_first_is_in_an_earlier_segment(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client, Worker(log, [Talker], home=tmp_path):
        run = await client.start("talker", {})
        for word in WORDS[:5]:
            await run.signal("message", word, idempotency_key=word)
        await turns(run, 5)
        for word in WORDS[:5]:
            await run.signal("message", word, idempotency_key=word)
        await run.signal("message", "bye")
        assert (await run.result(timeout=PATIENCE_S))["answers"] == [*ANSWERS[:5], "6: BYE"]


async def test_a_signal_that_the_beginning_overtakes_counts_once(log: EventLog, tmp_path: Path) -> None:
    events = await events_of(await talked(log, tmp_path))
    index = next(i for i, event in enumerate(events) if event.event_type == STARTED)
    started = events[index]
    left = started.payload["carried"]["signals"]["message"]["left"]
    assert left, "messages were waiting"
    waiting = next(event for event in events if event.event_id == left[0]["event_id"])
    history = RunHistory()
    for event in (*events[:2], started, waiting):
        history.apply(event)
    assert [event.event_id for event in history.signals["message"]] == [one["event_id"] for one in left]
    assert waiting.event_type == RunSignalled.TYPE


class Settled(Talker):
    """Each step is on the log before the next one begins."""

    durability: ClassVar[Durability] = Durability.SYNC


POINTS = (
    ("kernel.node.completed", 4),
    ("kernel.checkpoint.created", 4),
    (STARTED, 1),
    ("kernel.node.entered", 5),
    ("kernel.node.completed", 5),
    ("effect.requested", 3),
    ("kernel.node.completed", 8),
    (STARTED, 2),
    ("kernel.node.entered", 9),
)


async def check_death(rehearsal: Rehearsal) -> None:
    run = await rehearsal.start({})
    for word in [*WORDS[:5], "bye"]:
        await run.signal("message", word)
    assert (await run.result(timeout=PATIENCE_S))["answers"] == [*ANSWERS[:5], "6: BYE"]
    assert rehearsal.crashes == 1
    events = await run.history()
    assert [e.payload["segment"] for e in events if e.event_type == STARTED] == [2, 3]
    done = [e.payload["step"] for e in events if e.event_type == "kernel.node.completed"]
    assert done == list(range(1, 13))
    assert sum(Talker.called.values()) <= 7, "one call was under way"
    assert (await verify(run, agent_target(Talker, rehearsal.log))).difference is None


@pytest.mark.parametrize("kind", [Talker, Settled])
@pytest.mark.parametrize("reaches_log", [True, False])
@pytest.mark.parametrize(("event_type", "number"), POINTS)
async def test_a_death_around_the_beginning_of_a_segment_changes_nothing(
    kind: type[Talker], event_type: str, number: int, reaches_log: bool
) -> None:
    async with Rehearsal(kind) as rehearsal:
        (rehearsal.crash_after if reaches_log else rehearsal.crash_before)(event_type, number)
        await check_death(rehearsal)


@pytest.mark.parametrize("number", range(2, 70, 9))
async def test_a_death_at_any_event_changes_nothing(number: int) -> None:
    async with Rehearsal(Talker) as rehearsal:
        strike_at(rehearsal, number, reaches_log=bool(number % 2))
        await check_death(rehearsal)


@pytest.mark.parametrize(
    ("error", "reaches_log"),
    [  # a commit for which the log is unavailable has not reached it
        (LogUnavailableError("gone"), False),
        (CommitUnknownError("lost"), False),
        (CommitUnknownError("lost"), True),
    ],
)
async def test_a_commit_of_a_beginning_that_fails_is_made_good(
    tmp_path: Path, error: Exception, reaches_log: bool
) -> None:
    log = await open_log(f"memory://{tmp_path.name}-{reaches_log}?partitions=1")

    def begins(count: int, outgoing: Sequence[Outgoing]) -> bool:
        return any(record.envelope.event_type == STARTED for record in outgoing)

    failing = FailingLog(log, begins, error, reaches_log=reaches_log)
    async with Worker(failing, [Talker], home=tmp_path), Client(log) as client:
        run = await client.start("talker", {})
        for word in [*WORDS[:5], "bye"]:
            await run.signal("message", word)
        assert (await run.result(timeout=PATIENCE_S))["answers"] == [*ANSWERS[:5], "6: BYE"]
        assert failing.failed
        segments = [e.payload["segment"] for e in await events_of(run) if e.event_type == STARTED]
        assert segments == [2, 3]
    await log.close()


class Listed(TypedDict, total=False):
    rounds: int
    done: Annotated[list[str], operator.add]


async def test_no_segment_begins_while_something_would_have_to_be_undone(
    log: EventLog, tmp_path: Path
) -> None:
    async def work(state: Listed) -> dict[str, Any]:
        number = state.get("rounds", 0)
        undo = give_back if number == 2 else None
        await current_step().effect("take", take, number, compensate=undo)
        return {"rounds": number + 1, "done": [str(number)]}

    graph = StateGraph(Listed).add_node("work", work).add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: END if state["rounds"] == 9 else "work")
    kind = agent_from_graph(graph, agent_type="taker")
    kind.segment_steps = 2
    async with Worker(log, [kind], home=tmp_path), Client(log) as client:
        run = await client.start("taker", {})
        assert (await run.result(timeout=PATIENCE_S))["rounds"] == 9
        events = await events_of(run)
    assert [e.payload["step"] for e in events if e.event_type == STARTED] == [3]


def take(number: int) -> int:
    return number


@kernel_compensation()
def give_back(result: int, number: int) -> None:
    return None


def test_a_segment_is_the_same_under_every_hash_seed() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-m", "tests.support.talks_printed"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(printed) == 1
    (events,) = printed
    assert events.count(STARTED) == 4


def test_a_segment_has_a_length(tmp_path: Path) -> None:
    class Short(Talker):
        segment_steps: ClassVar[int | None] = 1

    with pytest.raises(ConfigError, match="segment_steps = 1"):
        _ = Short.segments.fget(Short)  # type: ignore[attr-defined]
