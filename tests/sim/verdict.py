"""What has to hold of a simulated world beside the rules of `invariants`: its agents are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from noesium_stream.event.envelope import EventEnvelope
from tests.sim.cast import NODES, RUNNER
from tests.support import invariants
from tests.support.invariants import Book, Call


def wrong_ends(book: Book) -> Iterator[str]:
    """Runs that failed or were cancelled without a reason."""
    for run_id, events in book.runs.items():
        end = invariants.outcome_of(book, run_id)
        if end is None:
            continue
        types = {event.event_type for event in events}
        if end.event_type == "run.failed" and not _may_fail(end, events, types):
            said = f"{end.payload['error_type']}: {end.payload.get('message', '')}"
            yield f"failed: run {run_id} for no reason: {said}"
        if end.event_type == "run.cancelled" and "run.cancel.requested" not in types:
            yield f"failed: run {run_id} was cancelled, and nobody asked for it"
        if end.event_type == "command.expired":
            yield f"failed: run {run_id} expired"


def _may_fail(end: EventEnvelope, events: Sequence[EventEnvelope], types: set[str]) -> bool:
    error_type = end.payload.get("error_type", "")
    if f"failed at {RUNNER}: told to fail" in end.payload.get("message", ""):
        return "capability.unresolved" in types  # else there is the walker
    if "told to fail" in end.payload.get("message", "") or "capability.unresolved" in types:
        return True
    if error_type == "DeadlineExceededError":
        return "run.deadline.passed" in types
    if error_type in ("TimeoutError", "ConnectionRefusedError"):  # the other attempts took too long
        return any(event.payload.get("error_type") == "TimeoutError" for event in events[:-1])
    given_up = any(
        event.event_type == "effect.resolved" and event.payload["decision"] == "fail" for event in events
    )
    return given_up or "CapabilityError" in error_type


def wrong_versions(book: Book) -> Iterator[str]:
    """Runs that did not begin with what their command asks for, or did not stay with it."""
    for run_id, events in book.runs.items():
        started = next((event for event in events if event.event_type == "run.started"), None)
        if started is None:
            continue
        version = started.payload["agent_version"]
        wanted = events[0].payload.get("agent_version")
        nodes = {e.payload["node"] for e in events if e.event_type == "kernel.node.entered"}
        # One that is cancelled while its command is deferred begins with any, and does nothing.
        if nodes and wanted is not None and wanted.startswith("^") and wanted[1] != version[0]:
            yield f"version: run {run_id} began with {version}, and was to with {wanted}"
        if nodes - {NODES[version]}:
            yield f"version: run {run_id} began with {version}, and went through {sorted(nodes)}"


def wrong_words(book: Book) -> Iterator[str]:
    """Results that are not what people said: the first answer to a question counts."""
    for run_id, events in book.runs.items():
        end = invariants.outcome_of(book, run_id)
        if end is None or end.event_type != "run.completed":
            continue
        asked = {e.payload["approval_id"]: e for e in events if e.event_type == "approval.requested"}
        said: dict[Any, bool] = {}
        for event in events:
            if event.event_type == "approval.answered":
                question = asked[event.payload["approval_id"]].payload["question"]
                if isinstance(question, str):  # else it is about a tool call
                    said.setdefault(question, event.payload["approved"])
        orders = events[0].payload.get("input", events[0].payload.get("arguments", {})).get("orders", ())
        for (kind, *rest), got in zip(orders, end.payload["result"]["got"], strict=False):
            if kind == "ask" and got is not said.get(rest[0]):
                right = said.get(rest[0])
                yield f"answer: run {run_id} took {got} for what people said of {rest[0]}: {right}"


def late_calls(
    book: Book, calls: Iterable[Call], names: Mapping[str, str], seconds_of: Callable[[int], float]
) -> Iterator[str]:
    """Calls by processes that were not the owners of the run any more.

    Args:
        book: what is on the log.
        calls: those that reached the outside.
        names: of the processes, by instance.
        seconds_of: the virtual time of a moment in milliseconds since the epoch.
    """
    owners: dict[tuple[str, int], list[tuple[float, str]]] = {}
    places: dict[str, tuple[str, int]] = {}
    for kind, records in book.journals.items():
        for record in records:
            place = (kind, record.partition)
            if record.event_type == "partition.acquired":
                at_s = seconds_of(record.timestamp_ms)
                instance = record.envelope.payload["instance_id"]
                owners.setdefault(place, []).append((at_s, names.get(instance, instance)))
            elif record.event_type == "effect.requested":
                places[record.envelope.payload["idempotency_key"]] = place
    for call in calls:
        if call.kind not in ("external", "idempotent", "undo") or call.key not in places:
            continue
        before = [who for at_s, who in owners[places[call.key]] if at_s + 0.001 < call.begun_s]
        if before and before[-1] != call.process:
            yield (
                f"late: {call.process} called {call.words} ({call.key}) at {call.begun_s:.4f}, when the "
                f"owner was {before[-1]}"
            )
