"""Facts: what the events of memory say, and which of them are live (RFC-0004 §5.2).

Which facts are live is a pure function of the set of events: it does not depend on the order in which the
partitions of the log are read, so that every process comes to the same memory.

- A write without `replaces` takes the place of everything that was written to its key before it, by the time
  of the events and, at equal times, by their ids: those of one process grow.
- A write with `replaces` takes the place of just these facts; two that replace the same one without knowing
  of each other contradict each other, and both are live until somebody decides.
- A fact whose source is retracted counts as if it had never been written: what it had replaced is back, and
  what was derived from it is gone as well.
- A fact replaces facts of its own scope alone.
- A summary comes from the facts that it stands for: if one of them is not believed, it is gone, and the
  others are back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope

WRITTEN: Final = "memory.written"
DELETED: Final = "memory.deleted"
RETRACTED: Final = "memory.retracted"
TYPES: Final = (WRITTEN, DELETED, RETRACTED)
FACT: Final = "memory:"
"""A source that begins with it names a fact by its id."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One write, or one deletion. Times are milliseconds since the epoch.

    Attributes:
        id: names it.
        scope: who remembers it.
        key: its key.
        value: any JSON value; None for a deletion.
        metadata: what its writer has added.
        at_ms: the time of its event.
        agent_id: the agent or program that wrote it.
        run_id: the run that wrote it; None: a program.
        event_id: its event.
        deleted: whether it is a deletion.
        replaces: facts whose place it takes; None: of all before it.
        stands_for: facts of any key of its scope that it sums up, and whose place it takes as well.
        sources: what it comes from.
        said_by: who said it.
        valid_from_ms: since when it held.
        valid_until_ms: until when it held.
        expires_ms: from when on it is not shown.
        reason: why it was deleted.
        about: users beside that of its scope whom it is about.
    """

    id: str
    scope: str
    key: str
    value: Any
    at_ms: int
    agent_id: str
    event_id: str
    run_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    deleted: bool = False
    replaces: tuple[str, ...] | None = None
    stands_for: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    said_by: str | None = None
    valid_from_ms: int | None = None
    valid_until_ms: int | None = None
    expires_ms: int | None = None
    reason: str | None = None
    about: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, str]:
        """By which the later of two facts is found."""
        return self.at_ms, self.event_id

    @property
    def takes(self) -> tuple[str, ...]:
        """The facts that it names as replaced, each once."""
        return tuple(dict.fromkeys((*(self.replaces or ()), *self.stands_for)))

    @property
    def origins(self) -> tuple[str, ...]:
        """What it comes from, each once: sources, what it sums up, `agent:ID`, and `run:ID` of its run."""
        run = () if self.run_id is None else (f"run:{self.run_id}",)
        parts = (FACT + one for one in self.stands_for)
        return tuple(dict.fromkeys((*self.sources, *parts, f"agent:{self.agent_id}", *run)))

    def shown(self, now_ms: int | None) -> bool:
        """Whether it has not expired; None: whatever the time."""
        return now_ms is None or self.expires_ms is None or now_ms < self.expires_ms


@dataclass(frozen=True, slots=True)
class Retraction:
    """A source that is not believed, or with `restored` believed again."""

    source: str
    at_ms: int
    event_id: str
    by: str
    restored: bool
    reason: str | None = None

    @property
    def order(self) -> tuple[int, str]:
        """By which the later of two is found."""
        return self.at_ms, self.event_id


def told_by(event: EventEnvelope, run_id: str | None) -> Fact | Retraction:
    """What an event of memory says; `run_id` is the run whose journal has it."""
    payload, agent_id = event.payload, event.producer.agent_id
    if event.event_type == RETRACTED:
        return Retraction(
            payload["source"],
            event.timestamp_ms,
            event.event_id,
            agent_id,
            bool(payload.get("restored")),
            payload.get("reason"),
        )
    replaces = payload.get("replaces")
    return Fact(
        id=payload.get("memory_id") or event.event_id,
        scope=payload.get("scope") or f"agent:{agent_id}",
        key=payload["key"],
        value=payload.get("value"),
        at_ms=event.timestamp_ms,
        agent_id=agent_id,
        event_id=event.event_id,
        run_id=run_id,
        metadata=payload.get("metadata") or None,
        deleted=event.event_type == DELETED,
        replaces=None if replaces is None else tuple(replaces),
        stands_for=tuple(payload.get("stands_for") or ()),
        sources=tuple(payload.get("sources") or ()),
        said_by=payload.get("said_by"),
        valid_from_ms=payload.get("valid_from_ms"),
        valid_until_ms=payload.get("valid_until_ms"),
        expires_ms=payload.get("expires_ms"),
        reason=payload.get("reason"),
        about=tuple(payload.get("about") or ()),
    )


def unbelieved(retractions: Iterable[Retraction]) -> set[str]:
    """The sources that are not believed now: of several retractions of one source the latest counts."""
    latest: dict[str, Retraction] = {}
    for one in retractions:
        known = latest.get(one.source)
        if known is None or known.order < one.order:
            latest[one.source] = one
    return {source for source, one in latest.items() if not one.restored}


def live_facts(facts: Iterable[Fact], not_believed: Collection[str] = ()) -> list[Fact]:
    """The live facts among all facts of some scopes, the latest first.

    The definition of the fold, in one place; `memory/fold.py` does the same step by step.
    """
    by_id: dict[str, Fact] = {}
    for fact in facts:
        by_id.setdefault(fact.id, fact)
    gone = _derived(by_id, not_believed)
    believed = [fact for fact in by_id.values() if fact.id not in gone]
    taken = {(fact.scope, one) for fact in believed for one in fact.takes}
    first = (-1, "")
    latest: dict[tuple[str, str], tuple[int, str]] = {}
    for fact in believed:
        if fact.replaces is None:
            place = fact.scope, fact.key
            latest[place] = max(latest.get(place, first), fact.order)
    live = (
        fact
        for fact in believed
        if not fact.deleted
        and (fact.scope, fact.id) not in taken
        and fact.order >= latest.get((fact.scope, fact.key), first)
    )
    return sorted(live, key=lambda fact: fact.order, reverse=True)


def _derived(by_id: Mapping[str, Fact], not_believed: Collection[str]) -> set[str]:
    """The facts that come from these sources, directly or through other facts."""
    below: dict[str, list[str]] = {}
    for fact in by_id.values():
        for source in (*fact.origins, FACT + fact.id):
            below.setdefault(source, []).append(fact.id)
    found: set[str] = set()
    waiting = [one for source in not_believed for one in below.get(source, ())]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += below[FACT + one]
    return found
