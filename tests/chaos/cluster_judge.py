"""Judges what a fault has left on the log and outside.

Beside the rules of `tests.support.invariants`, and of `check` for a handler's sums: no run fails, is
cancelled or expires without a reason (failed), and nobody calls who does not own the run any more (late).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog
from tests.chaos.check import wrong_sums
from tests.chaos.cluster_load import Load
from tests.chaos.workload import KINDS, SUMS
from tests.support import invariants
from tests.support.invariants import Book, Call

MEANWHILE_S: Final = 0.05
"""The broker's time and the caller's are read at other instants."""


async def judged(log: EventLog, load: Load, ledger: Sequence[Call]) -> tuple[list[str], Book]:
    """What does not hold, and what is on the log."""
    book = await invariants.read_book(log, KINDS)
    faults = invariants.broken(book, load.asked.values(), ledger)
    faults += wrong_ends(book)
    faults += load.reader.faults(book)
    things = await invariants.read_topic(log, log.topology.events("things"))
    sums = await invariants.read_topic(log, log.topology.events("sums"))
    faults += wrong_sums(things, sums, load.facts)
    # Not by `fenced_writers`: partitions of what a handler reads share those of its journal.
    journal = await invariants.read_topic(log, log.topology.journal(SUMS))
    faults += invariants.torn_commits([*sums, *journal])
    faults += await late_calls(log, book, ledger)
    return faults, book


def wrong_ends(book: Book) -> Iterator[str]:
    """Runs that failed, were cancelled or expired without a reason."""
    for run_id, events in book.runs.items():
        end = invariants.outcome_of(book, run_id)
        if end is None:
            continue
        types = {event.event_type for event in events}
        given_up = any(
            event.event_type == "effect.resolved" and event.payload["decision"] == "fail" for event in events
        )
        told = "told to fail" in end.payload.get("message", "") or given_up
        child = "CapabilityError" in end.payload.get("error_type", "")
        if end.event_type == "run.failed" and not (told or child):
            yield f"failed: run {run_id} for no reason: {end.payload['error_type']}: {end.payload['message']}"
        if end.event_type == "run.cancelled" and "run.cancel.requested" not in types:
            yield f"failed: run {run_id} was cancelled, and nobody asked for it"
        if end.event_type == "command.expired":
            yield f"failed: run {run_id} expired"


async def late_calls(log: EventLog, book: Book, ledger: Sequence[Call]) -> list[str]:
    """Calls by processes that were not the owners of the run any more."""
    names = {
        record.envelope.payload["instance_id"]: record.envelope.payload["process"]
        for record in await invariants.read_topic(log, log.topology.heartbeat)
        if record.event_type == "agent.heartbeat"
    }

    # Who is killed soon has given no sign of life: it is the process that makes the calls it has announced.
    names = {**callers(book, ledger), **names}

    def name_of(acquired: EventEnvelope) -> str:
        instance = str(acquired.payload["instance_id"])
        return str(names.get(instance, instance))

    return called_late(book, ledger, name_of)


def callers(book: Book, ledger: Sequence[Call]) -> dict[str, str]:
    """By instance, the process that made the external calls whose intent it has recorded, if it is one.

    Nobody makes an external call that another one has announced.
    """
    instances = {
        record.envelope.payload["idempotency_key"]: record.envelope.producer.instance_id
        for records in book.journals.values()
        for record in records
        if record.event_type == "effect.requested"
    }
    found: defaultdict[str, set[str]] = defaultdict(set)
    for call in ledger:
        if call.kind == "external" and call.key in instances:
            found[instances[call.key]].add(call.process)
    return {instance: next(iter(processes)) for instance, processes in found.items() if len(processes) == 1}


def called_late(
    book: Book,
    ledger: Sequence[Call],
    name_of: Callable[[EventEnvelope], str],
    meanwhile_s: float = MEANWHILE_S,
) -> list[str]:
    """See `late_calls`.

    Args:
        book: what is on the log.
        ledger: the calls.
        name_of: which process of the ledger has acquired a partition.
        meanwhile_s: so long after the next owner's first record a call of the last one is none of its faults.
    """
    owners: defaultdict[tuple[str, int], list[tuple[float, str]]] = defaultdict(list)
    places: dict[str, tuple[str, int]] = {}
    for kind, records in book.journals.items():
        for record in records:
            place = (kind, record.partition)
            if record.event_type == "partition.acquired":
                owners[place].append((record.timestamp_ms / 1000, name_of(record.envelope)))
            elif record.event_type == "effect.requested":
                places[record.envelope.payload["idempotency_key"]] = place
    faults = []
    for call in ledger:
        if call.kind not in ("external", "undo") or call.key not in places:
            continue
        owned = owners[places[call.key]]
        before = [who for at_s, who in owned if at_s + meanwhile_s < call.begun_s]
        meanwhile = {who for at_s, who in owned if abs(at_s - call.begun_s) <= meanwhile_s}
        if call.process not in {*before[-1:], *meanwhile}:
            at = f"{call.begun_s:.3f}, when the owner was {before[-1:]}"
            faults.append(f"late: {call.process} called {call.words} ({call.key}) at {at}")
    return faults
