"""The log side of `LogCheckpointer`: appends its records and folds those of all processes.

All records lie in the one partition of `{ns}.events.checkpoint`. Nothing counts before it is on the log: an
operation appends, and the fold takes the record from the log, or directly if nobody else wrote in between.
The caller must finish one operation before the next begins (see `loop_thread`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import ConfigError, TopicConfigError
from noesium_stream.event.domain_event import DomainEvent, new_trace
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.standard import (
    CheckpointPartSaved,
    CheckpointRunsDeleted,
    CheckpointSaved,
    CheckpointThreadCopied,
    CheckpointThreadDeleted,
    CheckpointThreadsPruned,
    CheckpointWritesSaved,
)
from noesium_stream.kernel.checkpointer.fold import ChannelHistory, Fold, Node, Write
from noesium_stream.kernel.checkpointer.record import Save, content, split
from noesium_stream.kernel.checkpointer.values import Tree, Values
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import TopicKind, TopicSpec

RECORDS: Final[tuple[type[DomainEvent], ...]] = (
    CheckpointPartSaved,
    CheckpointRunsDeleted,
    CheckpointSaved,
    CheckpointThreadCopied,
    CheckpointThreadDeleted,
    CheckpointThreadsPruned,
    CheckpointWritesSaved,
)


class Found(NamedTuple):
    """A requested checkpoint, as trees."""

    node: Node
    tree: Tree
    writes: list[Write]


class CheckpointStore:
    """All operations of a checkpointer, on trees, on one event loop."""

    def __init__(self, log: EventLog, values: Values, clock: Clock) -> None:
        self._log = log
        self._values = values
        self._clock = clock
        self._topic = log.topology.events("checkpoint")
        self._fold = Fold()
        self._next = 0
        self._parts: dict[str, list[str]] = {}
        self._producer = AgentRef("checkpointer", "checkpointer", "local", clock.uuid7())
        self._trace = new_trace(clock)

    @classmethod
    async def open(cls, log: EventLog, values: Values, clock: Clock | None = None) -> CheckpointStore:
        """Create the topic if it does not exist.

        Raises:
            ConfigError: the log is not an embedded one.
            TopicConfigError: the topic has more than one partition.
        """
        if not isinstance(log, EmbeddedLog):
            raise ConfigError(
                f"A LogCheckpointer works on memory:// and sqlite:// logs, not on {log.url}.",
                hint="On a broker, run the graph as an agent: its checkpoints are in the run's journal.",
            )
        for record in RECORDS:
            log.catalogue.register(record, lazily=True)
        store = cls(log, values, clock or SystemClock())
        spec = TopicSpec(store._topic, TopicKind.EVENTS, 1, None)
        await log.ensure_topics([spec])
        partitions = len(await log.end(store._topic))
        if partitions != 1:
            raise TopicConfigError(
                f"{store._topic} has {partitions} partitions, checkpoints need one order.",
                hint="Other events of the domain `checkpoint` were there first: use another namespace.",
            )
        return store

    async def get(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Found | None:
        """The checkpoint of this id, or the latest one."""
        await self._read()
        node = self._fold.node(thread_id, namespace, checkpoint_id)
        return None if node is None else self._found(node)

    async def nodes(self, thread_id: str | None, namespace: str | None) -> list[Node]:
        """All checkpoints, of a thread, of a namespace, newest first; see `load`."""
        await self._read()
        return self._fold.nodes(thread_id, namespace)

    async def load(self, nodes: Sequence[Node]) -> list[Found]:
        """The content of these checkpoints."""
        return [self._found(node) for node in nodes]

    async def history(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, channels: Sequence[str]
    ) -> dict[str, ChannelHistory]:
        """See `Fold.history`; empty for an unknown checkpoint."""
        await self._read()
        node = self._fold.node(thread_id, namespace, checkpoint_id)
        if node is None:
            return {channel: ChannelHistory([], []) for channel in channels}
        return self._fold.history(node, channels)

    async def save(self, save: Save) -> None:
        """Append a checkpoint.

        Raises:
            RecordTooLargeError: it exceeds `MAX_BODY_BYTES`.
            LogFullError, LogUnavailableError: nothing was written.
        """
        if save.parent_id is not None and self._parent(save) is None:
            await self._read()
        parent = self._parent(save)
        rev = await self._save(save, parent, parent)
        if rev in self._fold.orphans:
            # Another process deleted the base meanwhile: save it as a whole.
            await self._save(save, None, parent)

    async def write(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        task_path: str,
        writes: Sequence[tuple[int, str, Tree]],
    ) -> None:
        """Append a task's writes; raises as `save` does."""
        record = CheckpointWritesSaved(
            thread_id=thread_id,
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            task_id=task_id,
            task_path=task_path,
        )
        await self._append(record, thread_id, [list(write) for write in writes])

    async def tell(self, event: DomainEvent, key: str) -> None:
        """Append a record without a body: a deletion, a copy, a pruning."""
        await self._append(event, key, None)

    def _found(self, node: Node) -> Found:
        return Found(node, self._fold.tree(node), self._fold.writes(node))

    def _parent(self, save: Save) -> Node | None:
        if save.parent_id is None:
            return None
        return self._fold.node(save.thread_id, save.namespace, save.parent_id)

    async def _save(self, save: Save, base: Node | None, parent: Node | None) -> str:
        """Append the checkpoint as a delta against `base`, or as a whole; return the record's id."""
        before = None if parent is None else self._fold.tree(parent)
        made = content(save, base, parent, before)
        record = CheckpointSaved(
            thread_id=save.thread_id,
            namespace=save.namespace,
            checkpoint_id=save.checkpoint_id,
            parent_id=save.parent_id,
            base=None if made.base is None else made.base.rev,
            weight=made.weight,
        )
        return await self._append(record, save.thread_id, made.body)

    async def _append(self, event: DomainEvent, key: str, body: Tree) -> str:
        """Append a record with its parts; return its id once the fold has it."""
        rev = self._clock.uuid7()
        payload = event.payload()
        envelopes = []
        if body is not None:
            sealed = self._values.seal(body)
            parts = split(sealed, payload)
            payload["parts"] = len(parts)
            payload["body"] = None if parts else sealed
            for index, text in enumerate(parts):
                part = CheckpointPartSaved(thread_id=key, record=rev, index=index, text=text)
                envelopes.append(self._envelope(self._clock.uuid7(), part, part.payload(), key))
        envelopes.append(self._envelope(rev, event, payload, key))
        positions = await self._log.append(envelopes, topic=self._topic)
        if positions[0].offset == self._next:
            self._next += len(positions)
            self._apply(event.event_type(), rev, payload, body)
        else:
            await self._read()
        return rev

    def _envelope(
        self, event_id: str, event: DomainEvent, payload: dict[str, Any], key: str
    ) -> EventEnvelope:
        return EventEnvelope(
            event_id=event_id,
            event_type=event.event_type(),
            event_version=event.event_version(),
            timestamp_ms=self._clock.now_ms(),
            producer=self._producer,
            trace=self._trace,
            partition_key=key or None,
            payload=payload,
        )

    async def _read(self) -> None:
        """Fold the new records of the log."""
        end = await self._log.end(self._topic)
        if end[0] <= self._next:
            return
        types = [record.event_type() for record in RECORDS]
        async for batch in self._log.read_batches(self._topic, {0: self._next}, until=end, types=types):
            for record in batch:
                event = record.envelope
                self._apply(event.event_type, event.event_id, event.payload, self._body(event))
                self._next = record.offset + 1
        self._next = end[0]

    def _body(self, event: EventEnvelope) -> Tree:
        """The body of a record, joined from its parts."""
        payload = event.payload
        if payload.get("parts"):
            text = "".join(self._parts.pop(event.event_id))
            return self._values.unseal(orjson.loads(text))
        body = payload.get("body")
        return None if body is None else self._values.unseal(body)

    def _apply(self, event_type: str, rev: str, payload: dict[str, Any], body: Tree) -> None:
        fold = self._fold
        if event_type == CheckpointSaved.TYPE:
            fold.save(rev, payload, body)
        elif event_type == CheckpointWritesSaved.TYPE:
            fold.write(payload, body)
        elif event_type == CheckpointPartSaved.TYPE:
            self._parts.setdefault(payload["record"], []).append(payload["text"])
        elif event_type == CheckpointThreadDeleted.TYPE:
            fold.delete_thread(payload["thread_id"])
        elif event_type == CheckpointThreadCopied.TYPE:
            fold.copy(rev, payload["source_thread_id"], payload["thread_id"])
        elif event_type == CheckpointRunsDeleted.TYPE:
            fold.delete_runs(payload["run_ids"])
        elif event_type == CheckpointThreadsPruned.TYPE:
            fold.prune(payload["thread_ids"], payload["strategy"])
