"""What has to hold of schedules: judged from the log, and from what the calendar says of each minute.

By the word that a fault begins with:

- tick: what a `schedule.woken` says is what was due, by the calendar, since the ticks that were dealt with
  before; those older than the catch-up window, and they alone, are missed; in the end none is left over.
- decision: each tick that was due while its schedule was active has one decision, started, buffered or
  skipped, and each that was buffered starts once, is replaced, or waits at the end; none has two.
- run: each command of a run has its tick, in one commit, and each tick that has started one command.
- overlap: at no instant are runs open that the policy of a tick keeps apart; what it is to cancel is asked to
  end, nothing else is, and nothing is skipped for the sake of a run that has ended.
- end: the end of each run has reached its schedule.
- diverged: a second fold of what people, clocks and runs said gives the same decisions, in the same order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.agent.request import AgentRequest
from noesium_stream.agent.schedules.decider import INPUTS, NONE, Decision, decide
from noesium_stream.agent.schedules.state import Schedule
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import COMMIT
from noesium_stream.log.record import Record
from tests.sim.schedules.lives import Life, lives_of
from tests.sim.schedules.overlaps import Runs, broken_overlap
from tests.support.invariants import Book

THE_END: Final = "the end"
FACTS: Final = (
    "schedule.tick.started",
    "schedule.tick.buffered",
    "schedule.tick.skipped",
    "schedule.refused",
)


@dataclass(slots=True)
class Told:
    """What the topic has of one name: what was said, and what was decided, each once and in order."""

    inputs: list[Record] = field(default_factory=list)
    facts: list[Record] = field(default_factory=list)


def broken_schedules(told: Sequence[Record], book: Book) -> Iterator[str]:
    """What does not hold, one line each."""
    runs = Runs(book)
    lives: list[Life] = []
    for name, one in told_by_name(told).items():
        yield from diverged(name, one)
        found = lives_of(one.inputs, THE_END)
        lives += found
        facts = defaultdict[str, list[Record]](list)
        for fact in one.facts:
            facts[fact.envelope.causation_id or ""].append(fact)
        for life in found:
            yield from life.faults
            yield from wrong_decisions(life, facts)
            yield from broken_overlap(life, one.inputs, one.facts, runs)
    yield from wrong_runs([r for r in told if r.event_type == FACTS[0]], runs, lives)


def told_by_name(told: Sequence[Record]) -> dict[str, Told]:
    """The records of each schedule's name; of those that stand there twice the first."""
    found, seen = defaultdict[str, Told](Told), set[str]()
    for record in told:
        if record.envelope.event_id not in seen:
            seen.add(record.envelope.event_id)
            one = found[record.key]
            (one.inputs if record.event_type in INPUTS else one.facts).append(record)
    return found


# -- decisions -----------------------------------------------------------------------------------------


def wrong_decisions(life: Life, facts: dict[str, list[Record]]) -> Iterator[str]:
    """Ticks without a decision, or with two; what was buffered and came to nothing, or to two things."""
    for cause_id, tick_ms in life.ticks:
        found = [fact for fact in facts[cause_id] if _decides(fact.envelope, life, tick_ms)]
        if len(found) != 1:
            kinds = [fact.event_type for fact in found]
            yield f"decision: the tick {tick_ms} of {life.name} (by {cause_id}) has {kinds}"
    for cause_id, missed in life.missed.items():
        found = [fact for fact in facts[cause_id] if fact.envelope.payload.get("reason") == "late"]
        if [fact.envelope.payload["count"] for fact in found] != [missed]:
            what = f"{missed} ticks of {life.name} came too late (by {cause_id})"
            yield f"decision: {what}, and {len(found)} events say so"
    times = Counter(tick_ms for _, tick_ms in life.ticks)
    counts = defaultdict[str, Counter[int]](Counter)
    for fact in (fact for records in facts.values() for fact in records):
        payload = fact.envelope.payload
        if payload.get("schedule_id") == life.schedule_id:
            kind = payload.get("reason", fact.event_type.rpartition(".")[2])
            counts[kind][payload.get("tick_ms", payload.get("from_ms"))] += 1
    waits = Counter(tick.tick_ms for tick in life.state.waiting)
    for tick_ms in counts["started"] | counts["buffered"]:
        over = sum(counts[kind][tick_ms] for kind in ("started", "replaced", "overlap", "full"))
        least = 0 if life.removed else times[tick_ms] - waits[tick_ms]
        if not least <= over <= times[tick_ms]:
            yield f"decision: {over} of {times[tick_ms]} ticks {tick_ms} of {life.name} came to something"


def _decides(event: EventEnvelope, life: Life, tick_ms: int) -> bool:
    payload = event.payload
    if payload.get("schedule_id") != life.schedule_id or payload.get("reason") in ("replaced", "late"):
        return False
    return bool(payload.get("tick_ms", payload.get("from_ms")) == tick_ms)


def wrong_runs(started: Sequence[Record], runs: Runs, lives: Sequence[Life]) -> Iterator[str]:
    """Commands without a tick, ticks without a command, and those that were not committed together."""
    ticks = Counter(record.envelope.payload["run_id"] for record in started)
    for run_id, count in ticks.items():
        if count != 1:
            yield f"run: {run_id} was started by {count} ticks"
    for run_id in ticks.keys() | runs.commands.keys():
        # One that comes to an inbox of an earlier generation is sent on, as the event that it is.
        commands = {one.envelope.event_id for one in runs.commands.get(run_id, ())}
        if len(commands) != 1 or run_id not in ticks:
            yield f"run: {run_id} has {len(commands)} commands and {ticks[run_id]} ticks"
    for record in started:
        run_id = record.envelope.payload["run_id"]
        if commit_of(record) not in [commit_of(command) for command in runs.commands.get(run_id, ())]:
            yield f"run: the command of {run_id} is in another commit than its tick"
    for life in lives:
        if life.state.open and not life.removed:
            yield f"end: {life.name} still waits for the ends of {[tick.run_id for tick in life.state.open]}"


def commit_of(record: Record) -> str:
    """The name of a record's commit."""
    header = record.header(COMMIT)
    return "" if header is None else header.decode().rsplit(":", 2)[0]


# -- a second fold -------------------------------------------------------------------------------------


def diverged(name: str, told: Told) -> Iterator[str]:
    """Where the facts on the log are not what a fold of the inputs gives."""
    expected: list[tuple[str, str, Any]] = []
    state: Schedule | None = NONE
    for record in told.inputs:
        event = record.envelope
        decision: Decision = decide(state or NONE, event)
        state = decision.state
        expected += [
            (made.event_type(), event.event_id, made.payload())
            for made in decision.made
            if not isinstance(made, AgentRequest)
        ]
    found = [(f.event_type, f.envelope.causation_id or "", f.envelope.payload) for f in told.facts]
    if len(found) != len(expected):
        yield f"diverged: {name} has {len(found)} decisions on the log, a second fold gives {len(expected)}"
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            yield f"diverged: the decision {number} of {name} is {one}, a second fold gives {other}"
            return
