"""What has to hold when all is over: judged from the log, the ledger of the outside, and what was folded.

Beside the rules of `tests.support.invariants`:

- failed: no run fails without a reason, none expires, and none is cancelled but by the end of its caller.
- tool, approval: those of `tests.sim.tool_rules`.
- sums: the handler made of each fact one sum, in the order of the facts of each key, and the right one.
- aborted, diverged: a live reader was given what is on the log and nothing else; what it folded is what its
  snapshot and the tail give, and what the whole log gives; so it is with the worker's own state and with a
  projection's, in processes of several hash seeds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from tests.chaos.people import Reader
from tests.chaos.refold import BEGINNING
from tests.chaos.workload import KINDS
from tests.sim.tool_rules import wrong_tool_calls
from tests.support import invariants
from tests.support.invariants import Asked, Book, Call, Folded

LOST: Final = ("lost", "passed over", "letter", "worker")
DIVERGED: Final = ("diverged", "aborted")


def counted(faults: Sequence[str]) -> dict[str, int]:
    """How many of the faults say that something was lost, doubled (or otherwise wrong), or diverged."""
    lost = sum(fault.startswith(LOST) for fault in faults)
    diverged = sum(fault.startswith(DIVERGED) for fault in faults)
    return {"lost": lost, "doubled": len(faults) - lost - diverged, "diverged": diverged}


async def judged(
    log: EventLog,
    asked: Collection[Asked],
    facts: Sequence[tuple[str, int]],
    ledger: Sequence[Call],
    reader: Reader,
    reports: Sequence[Mapping[str, Any]],
) -> list[str]:
    """What does not hold, one line each.

    Args:
        log: where nothing is under way any more.
        asked: the accepted commands.
        facts: the accepted facts, as (key, number).
        ledger: the calls that reached the outside.
        reader: that has followed the journals.
        reports: of `refold`, one for each hash seed.
    """
    book = await invariants.read_book(log, KINDS)
    faults = invariants.broken(book, asked, ledger)
    faults += wrong_ends(book)
    faults += wrong_tool_calls(book, ledger, KINDS)
    faults += wrong_sums(
        await invariants.read_topic(log, log.topology.events("things")),
        await invariants.read_topic(log, log.topology.events("sums")),
        facts,
    )
    for kind, records in book.journals.items():
        faults += invariants.seen_otherwise(reader.seen[kind], records)
    faults += folded_otherwise(book, reader.state, *reader.snapshot)
    faults += diverged(reports)
    return faults


def wrong_ends(book: Book) -> Iterator[str]:
    """Runs that failed or were cancelled without a reason."""
    for run_id, events in book.runs.items():
        end = invariants.outcome_of(book, run_id)
        if end is None or end.event_type == "run.completed":
            continue
        given_up = any(
            event.event_type == "effect.resolved" and event.payload["decision"] == "fail" for event in events
        )
        said = f"{end.payload.get('error_type')}: {end.payload.get('message')}"
        if end.event_type == "run.cancelled" and _caller_failed(book, events[0]):
            continue
        if end.event_type != "run.failed":
            yield f"failed: run {run_id} ended as {end.event_type}"
        elif not given_up and "told to fail" not in said and "CapabilityError" not in said:
            yield f"failed: run {run_id} for no reason: {said}"


def _caller_failed(book: Book, command: EventEnvelope) -> bool:
    """Whether the run that asked for this one has failed: then it is cancelled, unless it ended before."""
    caller = (command.payload.get("reply_to") or {}).get("run_id")
    end = invariants.outcome_of(book, caller) if caller else None
    return end is not None and end.event_type == "run.failed"


def wrong_sums(
    things: Sequence[Record], sums: Sequence[Record], facts: Sequence[tuple[str, int]]
) -> Iterator[str]:
    """Facts without a sum or with two of them, and sums that are wrong or out of order."""
    expected: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    by_cause: Counter[str | None] = Counter()
    there: Counter[tuple[str, int]] = Counter()
    for record in things:
        number = record.envelope.payload["number"]
        there[record.key, number] += 1
        before = expected[record.key][-1][1] if expected[record.key] else 0
        expected[record.key].append((number, before + number))
    for record in sums:
        payload = record.envelope.payload
        found[record.key].append((payload["number"], payload["total"]))
        by_cause[record.envelope.causation_id] += 1
    for fact in Counter(facts) - there:
        yield f"lost: the fact {fact} was accepted, and is not on the log"
    for record in things:
        count = by_cause.pop(record.envelope.event_id, 0)
        if count != 1:
            word = "doubled" if count else "lost"
            yield f"{word}: {record.key}/{record.envelope.payload['number']} was summed up {count} times"
    if by_cause:
        yield f"sums: some were made of nothing: {by_cause}"
    for key in expected.keys() | found.keys():
        if expected[key] != found[key]:
            yield f"sums: of {key} are {found[key]}, not {expected[key]}"


def folded_otherwise(
    book: Book, live: Folded, snapshot: Folded, cursor: Mapping[str, Mapping[int, int]]
) -> Iterator[str]:
    """Where a state that was folded live differs from one from a snapshot on, or from the beginning."""
    whole: Folded = {}
    tail = dict(snapshot)
    for kind, records in book.journals.items():
        for record in records:
            invariants.fold(whole, record)
            if record.offset >= cursor.get(kind, {}).get(record.partition, 0):
                invariants.fold(tail, record)
    if whole != live:
        yield "diverged: the state that was folded live is another than that from the beginning"
    if whole != tail:
        yield "diverged: the state from a snapshot on is another than that from the beginning"


def diverged(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Where states that processes have kept, with the tail of the log, are not those from the beginning."""
    for what, states in reports[0]["folded"].items():
        true = states.get(BEGINNING)
        for report in reports:
            for name, found in report["folded"][what].items():
                for part, state in found.items():
                    if true[part] != state:
                        yield f"diverged: {what} {part} of {name}: {state}, not {true[part]}"
            if report["folded"][what][BEGINNING] != true:
                yield f"diverged: {what} under another hash seed"
    for what in ("worker", "tally"):
        if not reports[0]["folded"][what].get(BEGINNING):
            yield f"diverged: nothing was folded of {what}"
    for report in reports:
        yield from (f"diverged: what was kept is of no use: {line}" for line in report["said"])
        for part, state in report["folded"]["worker"][BEGINNING].items():
            if state["open"]:
                yield f"lost: {part} has open runs: {sorted(state['open'])}"
