"""`DurableMemory`: what agents, people and programs remember, as events (RFC-0004 §5.2, RFC-1001 §9.2).

Within a node every write is an event that commits with the step, and every read is an effect: a replay reads
what was read. Elsewhere a write is appended to the log at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from noesium_stream.clock import Clock, to_ms
from noesium_stream.errors import AgentMemoryError
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.rules.provenance import LABEL_SOURCE
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.step.effects import Effects
from noesium_stream.kernel.step.position import Place, enclosing_step
from noesium_stream.log.port import EventLog, Position
from noesium_stream.memory import queries
from noesium_stream.memory.fact import Fact, Retraction, live_facts, told_by, unbelieved
from noesium_stream.memory.item import MemoryFilter, MemoryItem, items_of
from noesium_stream.memory.scope import allowed_scope, scope_of
from noesium_stream.memory.store import MemoryStore
from noesium_stream.memory.writing import Source, deleted, retracted, written

RECALL: Final = "memory.recall"
QUERY: Final = "memory.query"
DISBELIEVED: Final = "memory.disbelieved"


@dataclass(frozen=True)
class DurableMemory:
    """The memory of one scope.

    Attributes:
        store: the log's memory on this machine.
        log: the log.
        producer: who writes, where no step does.
        clock: time and ids, where no step has its own.
        scope: whose memory it is: `shared`, or `run:`, `session:`, `agent:`, `user:`, `tenant:` and an id.
        origins: sources of everything that is written through it.
        speaker: who has said it, where `write` does not say.
    """

    store: MemoryStore
    log: EventLog
    producer: AgentRef
    clock: Clock
    scope: str
    origins: tuple[Source, ...] = ()
    speaker: str | None = None

    def at(self, scope: str) -> DurableMemory:
        """The memory of another scope. In a node `run` and `session` mean the step's own.

        Raises:
            MemoryScopeError: it is no scope; or, in a node, another agent's, run's or session's.
        """
        place = enclosing_step()
        if place is None:
            return replace(self, scope=scope_of(scope))
        own = {"run": f"run:{place.run_id}", "session": f"session:{_session(place)}"}
        allowed = allowed_scope(
            own.get(scope, scope), self.producer.agent_type, place.run_id, _session(place)
        )
        return replace(self, scope=allowed)

    async def write(
        self,
        key: str,
        value: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        source: Source | None = None,
        sources: Iterable[Source] = (),
        replaces: Iterable[str | MemoryItem] | None = None,
        stands_for: Iterable[str | MemoryItem] = (),
        said_by: str | None = None,
        valid_from: datetime | None = None,
        valid_until: datetime | None = None,
        expires: datetime | None = None,
    ) -> str:
        """Remember a value under a key; return the fact's id.

        It takes the place of what was written to the key before. With `replaces` it takes the place of these
        facts alone, and stands beside any other that somebody has written meanwhile.

        Args:
            key: 1 to 1,000 characters; `customer.7.tier`.
            value: has a JSON form.
            metadata: JSON values by name; short ones can be searched for.
            source: what it comes from: a text such as `web:https://…`, an item of memory, or an event.
            sources: several of them. In a node the provenance of what the step could have read is added, as
                `label:web` and the like.
            replaces: facts of this scope, by item or id.
            stands_for: facts of this scope and of any key that this one sums up.
            said_by: who said it.
            valid_from: since when it holds, with a time zone.
            valid_until: until when it holds.
            expires: from when on it is not shown any more.

        Raises:
            AgentMemoryError: the key, a source or the number of sources is not possible.
            StateError: the value has no JSON form.
            LogUnavailableError, RecordTooLargeError: outside a node.
        """
        place = enclosing_step()
        labels = [] if place is None else [f"{LABEL_SOURCE}{label}" for label in sorted(place.labels())]
        given = [*([] if source is None else [source]), *sources, *self.origins, *labels]
        event = written(
            self.clock.uuid7 if place is None else place.uuid,
            self.scope,
            key,
            value,
            metadata,
            given,
            replaces=replaces,
            stands_for=stands_for,
            said_by=said_by or self.speaker,
            valid_from=valid_from,
            valid_until=valid_until,
            expires=expires,
        )
        await self._tell(event, place)
        assert event.memory_id is not None
        return event.memory_id

    async def delete(self, key: str, *, reason: str | None = None) -> None:
        """Forget a key: what was written to it before is not shown any more. Its history stays.

        Raises:
            AgentMemoryError, LogUnavailableError: as `write`.
        """
        place = enclosing_step()
        new_id = self.clock.uuid7 if place is None else place.uuid
        await self._tell(deleted(new_id, self.scope, key, reason), place)

    async def retract(self, source: Source, *, reason: str | None = None) -> None:
        """Do not believe a source: memory is as if nothing that comes from it had been written.

        What it had replaced is back, and what was derived from it is gone as well, in every scope. `agent:ID`
        and `run:ID` are sources of all that an agent or a run has written.

        Raises:
            AgentMemoryError, LogUnavailableError: as `write`.
        """
        await self._tell(retracted(source, reason, restored=False), enclosing_step())

    async def restore(self, source: Source, *, reason: str | None = None) -> None:
        """Believe a source again. Raises as `retract`."""
        await self._tell(retracted(source, reason, restored=True), enclosing_step())

    async def disbelieved(self, sources: Sequence[str]) -> list[str]:
        """Those of these sources that are retracted now. Raises as `recall`."""

        async def find() -> list[str]:
            return await self.found_disbelieved(sources)

        found: list[str] = await as_effect(DISBELIEVED, find, {"sources": list(sources)})
        return found

    async def found_disbelieved(self, sources: Sequence[str]) -> list[str]:
        """As `disbelieved`, within an effect of the caller's own."""
        await self.store.catch_up(self.log)
        bad = unbelieved(queries.retractions(self.store))
        return [source for source in sources if source in bad]

    async def read(self, key: str) -> Any | None:
        """The value of a key; None: nothing is remembered. See `recall`."""
        found = await self.recall(key)
        return None if found is None else found.value

    async def recall(self, key: str) -> MemoryItem | None:
        """What is remembered under a key now, with what its own run has written; None: nothing.

        Raises:
            LogTruncatedError, LogUnavailableError
            ProjectionError: the local file cannot be written.
        """

        async def find() -> dict[str, Any] | None:
            item = await self.found_key(key)
            return None if item is None else item.to_json()

        found = await as_effect(RECALL, find, {"scope": self.scope, "key": key})
        return None if found is None else MemoryItem.from_json(found)

    async def found_key(self, key: str) -> MemoryItem | None:
        """As `recall`, within an effect of the caller's own."""
        place = enclosing_step()
        await self.store.catch_up(self.log)
        facts = queries.live_of_key(self.store, self.scope, key)
        items = self._shown(self._with_own(place, facts, lambda fact: fact.key == key))
        return items[0] if items else None

    async def query(self, filter: MemoryFilter | None = None) -> list[MemoryItem]:
        """What fulfils a filter now, by scope and key.

        Raises:
            AgentMemoryError: the filter is not possible.
            MemoryScopeError: as `at`, for a scope of the filter.
            LogTruncatedError, LogUnavailableError, ProjectionError: as `recall`.
        """
        wanted = filter or MemoryFilter()
        scopes = [self.scope] if wanted.scopes is None else [self.at(scope).scope for scope in wanted.scopes]

        async def find() -> list[dict[str, Any]]:
            return [item.to_json() for item in await self.found(wanted, scopes)]

        if enclosing_step() is None:
            return await self.found(wanted, scopes)
        asked = {"scopes": scopes, "filter": _as_json(wanted)}
        items = await as_effect(QUERY, find, asked)
        return [MemoryItem.from_json(one) for one in items]

    async def found(self, wanted: MemoryFilter, scopes: Sequence[str] | None = None) -> list[MemoryItem]:
        """As `query`, within an effect of the caller's own; the scopes of the filter do not count."""
        place, within = enclosing_step(), list(scopes or [self.scope])
        await self.store.catch_up(self.log)
        facts = queries.live_of_filter(self.store, wanted, within)
        mine = self._with_own(place, facts, lambda fact: fact.scope in within and _fulfils(fact, wanted))
        ordered = sorted(mine, key=lambda fact: (within.index(fact.scope), fact.key))
        return self._shown(ordered)[: wanted.limit]

    def created_ms(self, key: str) -> int | None:
        """When a key was written first; None: it is not in the local file yet."""
        with self.store.reading() as db:
            found: int | None = db.execute(
                "SELECT min(at_ms) FROM fact WHERE scope = ? AND key = ?", (self.scope, key)
            ).fetchone()[0]
            return found

    async def as_of(self, moment: datetime | Position, key: str | None = None) -> list[MemoryItem]:
        """What was remembered at a time, by what was written and retracted until then; a key's, or all.

        With the position of a record in the log: when its event was the last one. Events of several
        partitions are in the order of their times, as everywhere in memory. For people and programs: a node
        has `recall`.

        Raises:
            AgentMemoryError: there is no record at the position.
            CorruptRecordError: it cannot be read.
            LogTruncatedError, LogUnavailableError, ProjectionError: as `recall`.
        """
        await self.store.catch_up(self.log)
        if isinstance(moment, Position):
            event = await self._event_at(moment)
            at_ms, event_id = event.timestamp_ms, event.event_id
            facts = queries.live_as_of(self.store, self.scope, at_ms, key, event_id=event_id)
        else:
            at_ms = to_ms(moment)
            facts = queries.live_as_of(self.store, self.scope, at_ms, key)
        return items_of([fact for fact in facts if fact.shown(at_ms)])

    async def _event_at(self, position: Position) -> EventEnvelope:
        topic, partition, offset = position
        known = await self.log.layout()
        if topic in known and 0 <= partition < known[topic].partitions and offset >= 0:
            until = {partition: min(offset + 1, (await self.log.end(topic))[partition])}
            if offset < until[partition]:
                source = self.log.read(topic, {partition: offset}, until=until, partitions=[partition])
                async for record in source:
                    return record.envelope
        raise AgentMemoryError(
            f"There is no record at {topic[:200]}/{partition}@{offset}.",
            hint="Positions are as in messages, such as noesium.events.memory/3@17; see: noesium topics",
        )

    async def rebuild(self) -> None:
        """Discard the local file and fold all events again. Raises as `recall`."""
        await self.store.rebuild(self.log)

    async def _tell(self, event: DomainEvent, place: Place | None) -> None:
        if place is not None:
            place.check_open()
            place.emitted.append(event)
            return
        # The key of a scope is one order: its writes stay in one partition.
        envelope = root_event(event, self.producer, self.clock, partition_key=self.scope)
        await self.log.append([envelope])

    def _shown(self, facts: list[Fact]) -> list[MemoryItem]:
        now_ms = self.clock.now_ms()
        return items_of([fact for fact in facts if fact.shown(now_ms)])

    def _with_own(self, place: Place | None, facts: list[Fact], fits: Callable[[Fact], bool]) -> list[Fact]:
        """The facts that are live when the run's own writes count that the log does not show yet."""
        if place is None:
            return facts
        events = [*place.history.remembered, *self._emitted(place)]
        own = [told_by(event, place.run_id) for event in events]
        told = [one for one in own if isinstance(one, Fact) and (fits(one) or one.takes)]
        known = queries.known(self.store, [one.id for one in told])
        added = [one for one in told if one.id not in known]
        bad = unbelieved(one for one in own if isinstance(one, Retraction))
        return [fact for fact in live_facts([*facts, *added], bad) if fits(fact)]

    def _emitted(self, place: Place) -> list[EventEnvelope]:
        """What this execution of the step has written: its events come after all others of the run."""
        events = [event for event in place.emitted if event.event_type().startswith("memory.")]
        return [root_event(event, self.producer, self.clock) for event in events]


async def as_effect(name: str, find: Callable[[], Awaitable[Any]], asked: dict[str, Any]) -> Any:
    """What `find` returns, a JSON value; in a node it is recorded, and a replay does not ask again.

    Args:
        name: the effect's name.
        find: reads memory.
        asked: what is asked for, as JSON: it tells this read from others of the node.
    """
    place = enclosing_step()
    if place is None:
        return await find()

    async def memory(*, asked: dict[str, Any]) -> Any:
        return await find()

    return await Effects(place).perform(name, memory, effect_class=SideEffectClass.PURE, asked=asked)


def _session(place: Place) -> str:
    """The session of a step: that of the first run of its task (RFC-0002, correlation id)."""
    return place.entered.correlation_id or place.run_id


def _fulfils(fact: Fact, wanted: MemoryFilter) -> bool:
    """Whether a fact fulfils a filter, without its scopes and limit."""
    metadata = fact.metadata or {}
    return (
        fact.key.startswith(wanted.prefix)
        and fact.key > wanted.after
        and (wanted.since_ms is None or fact.at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or fact.at_ms < wanted.until_ms)
        and (wanted.source is None or wanted.source in fact.origins)
        and wanted.said_by in (None, fact.said_by)
        and all(
            name in metadata and metadata[name] == value for name, value in (wanted.metadata or {}).items()
        )
    )


def _as_json(wanted: MemoryFilter) -> dict[str, Any]:
    found = {name: getattr(wanted, name) for name in wanted.__slots__}
    return {name: value for name, value in found.items() if value is not None and name != "scopes"}
