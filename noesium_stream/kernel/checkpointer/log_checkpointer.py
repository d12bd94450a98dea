"""`LogCheckpointer`: LangGraph's checkpoints on an event log, for users who need nothing else.

Every checkpoint is a record, a delta against its parent. Deletions, copies and prunings are records too (law
1: the log is the truth, the memory is a fold of it). Several processes on one file see each other's
checkpoints. Deleted checkpoints are no longer listed; the log itself keeps their records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from noesium_stream.event.standard import CheckpointThreadDeleted
from noesium_stream.kernel.checkpointer import requests
from noesium_stream.kernel.checkpointer.fold import ChannelHistory, Node, Write
from noesium_stream.kernel.checkpointer.loop_thread import Home, Work
from noesium_stream.kernel.checkpointer.record import Save
from noesium_stream.kernel.checkpointer.store import Found
from noesium_stream.kernel.checkpointer.values import Tree, Values
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog


class LogCheckpointer(BaseCheckpointSaver[int]):
    """A LangGraph checkpointer whose store is an embedded event log (`memory://`, `sqlite://`).

        with LogCheckpointer(open_log("sqlite:///threads.db")) as saver:
            graph = builder.compile(checkpointer=saver)

    Args:
        log: the coroutine that opens the log. The log is then opened at the first use, on an event loop in a
            thread of the checkpointer's own, so that all methods work from everywhere, and closed by `close`.
            Or an open log: it is used on the running loop and stays open; synchronous methods then work from
                other
            threads only.
        serde: serializes values that JSON cannot hold; default: LangGraph's own, strict: it reads back its
            safe types (messages, dates, UUIDs, sets, ...) as such, and objects of other classes as what they
            hold. `JsonPlusSerializer(allowed_msgpack_modules=[MyClass])` adds classes. Any other serializer
            (encryption) writes whole bodies; thread ids, namespaces and ids stay readable.

    Channel versions are integers. Methods are LangGraph's, each also as `a…`; their errors:
    `StateError` (a value cannot be written), `RecordTooLargeError` (over 64 MB at once), `LogClosedError`,
    `LogFullError`, `LogUnavailableError`, `ConfigError` (a call that cannot work, a log on a broker).
    """

    def __init__(
        self, log: EventLog | Awaitable[EventLog], *, serde: SerializerProtocol | None = None
    ) -> None:
        # LangGraph's own default builds any class that bytes on the log name.
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=None))
        self._home = Home(log, Values(self.serde))

    @classmethod
    def from_url(cls, url: str, *, serde: SerializerProtocol | None = None) -> Self:
        """A checkpointer on the log at `url`, which is opened at the first use."""
        return cls(open_log(url), serde=serde)

    def close(self) -> None:
        """Close the log if this checkpointer opened it; harmless when repeated."""
        self._home.close()

    async def aclose(self) -> None:
        """As `close`."""
        self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def get_next_version(self, current: int | None, channel: None) -> int:
        """The next version of a channel: one more."""
        return 1 if current is None else int(current) + 1

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the latest one of its thread and namespace."""
        return self._tuple_or_none(self._home.call(requests.get(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `get_tuple`."""
        return self._tuple_or_none(await self._home.run(requests.get(config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of all threads (`config` None), of a thread, of a namespace.

        `filter` compares metadata; `before` selects those that are older than its checkpoint id.
        """
        nodes = self._chosen(self._home.call(requests.nodes(config)), config, filter, before, limit)
        for page in requests.pages(nodes):
            for found in self._home.call(requests.load(page)):
                yield self._tuple(found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `list`."""
        nodes = self._chosen(await self._home.run(requests.nodes(config)), config, filter, before, limit)
        for page in requests.pages(nodes):
            for found in await self._home.run(requests.load(page)):
                yield self._tuple(found)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Per channel the writes of a checkpoint's ancestors, oldest first, and the value below them.

        This includes ancestors that were deleted or pruned.
        """
        return self._histories(self._home.call(requests.history(config, channels)))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See `get_delta_channel_history`."""
        return self._histories(await self._home.run(requests.history(config, channels)))

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint as a child of the one that `config` names; return the config that names it."""
        save = self._save(config, checkpoint, metadata, new_versions)
        self._home.call(lambda store: store.save(save))
        return requests.config_of(save.thread_id, save.namespace, save.checkpoint_id)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `put`."""
        save = self._save(config, checkpoint, metadata, new_versions)
        await self._home.run(lambda store: store.save(save))
        return requests.config_of(save.thread_id, save.namespace, save.checkpoint_id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save a task's writes on top of the checkpoint that `config` names.

        Repeating it changes nothing, except for LangGraph's special channels (errors, interrupts, resumes).
        """
        self._home.call(self._write(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `put_writes`."""
        await self._home.run(self._write(config, writes, task_id, task_path))

    # Deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread, with all of its namespaces and writes."""
        self._home.call(requests.tell(CheckpointThreadDeleted(thread_id=str(thread_id)), thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """See `delete_thread`."""
        await self._home.run(requests.tell(CheckpointThreadDeleted(thread_id=str(thread_id)), thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints whose metadata have one of these `run_id`s, in all threads."""
        if run_ids:
            self._home.call(requests.delete_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `delete_for_runs`."""
        if run_ids:
            await self._home.run(requests.delete_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread's checkpoints and writes, over those of the target that have the same ids."""
        self._home.call(requests.copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `copy_thread`."""
        await self._home.run(requests.copy(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace (`keep_latest`), or none (`delete`).

        Raises:
            ConfigError: another strategy.
        """
        if requests.check_strategy(strategy) and thread_ids:
            self._home.call(requests.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `prune`."""
        if requests.check_strategy(strategy) and thread_ids:
            await self._home.run(requests.prune(thread_ids, strategy))

    @property
    def _values(self) -> Values:
        # Not cached: LangGraph clones a checkpointer to give it another serializer.
        return Values(self.serde)

    def _save(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Save:
        """Save a checkpoint as it is now: later changes of its values do not reach the log."""
        thread_id, namespace = requests.thread_of(config)
        encode = self._values.encode
        given = dict(checkpoint["channel_values"])
        rest = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
        rest["channel_versions"] = dict(sorted(checkpoint["channel_versions"].items()))
        rest["versions_seen"] = {
            node: dict(sorted(seen.items())) for node, seen in sorted(checkpoint["versions_seen"].items())
        }

        def fill(channel: str) -> Tree:
            return encode(given[channel], f"channel_values.{channel}")

        return Save(
            thread_id=thread_id,
            namespace=namespace,
            checkpoint_id=checkpoint["id"],
            parent_id=get_checkpoint_id(config),
            rest={key: encode(value, key) for key, value in rest.items()},
            metadata=encode(dict(sorted(get_checkpoint_metadata(config, metadata).items())), "metadata"),
            changed=frozenset(new_versions),
            values={channel: fill(channel) for channel in given if channel in new_versions},
            others=frozenset(given.keys() - new_versions.keys()),
            fill=fill,
        )

    def _write(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Work[None]:
        thread_id, namespace = requests.thread_of(config)
        checkpoint_id = config["configurable"]["checkpoint_id"]
        values = self._values
        trees = [
            (WRITES_IDX_MAP.get(channel, index), channel, values.encode(value, f"writes.{channel}"))
            for index, (channel, value) in enumerate(writes)
        ]
        return lambda store: store.write(thread_id, namespace, checkpoint_id, task_id, task_path, trees)

    def _chosen(
        self,
        nodes: Sequence[Node],
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Sequence[Node]:
        wanted = get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        if wanted is not None:
            nodes = [node for node in nodes if node.checkpoint_id == wanted]
        if end is not None:
            nodes = [node for node in nodes if node.checkpoint_id < end]
        if filter:
            nodes = [node for node in nodes if self._fits(node, filter)]
        return nodes if limit is None else nodes[: max(limit, 0)]

    def _fits(self, node: Node, filter: dict[str, Any]) -> bool:
        decode = self._values.decode
        return all(decode(node.metadata.get(key)) == value for key, value in filter.items())

    def _tuple_or_none(self, found: Found | None) -> CheckpointTuple | None:
        return None if found is None else self._tuple(found)

    def _tuple(self, found: Found) -> CheckpointTuple:
        """The checkpoint with values of the caller's own: its changes to them reach nobody else."""
        node = found.node
        decode = self._values.decode
        place = (node.thread_id, node.namespace)
        return CheckpointTuple(
            config=requests.config_of(*place, node.checkpoint_id),
            checkpoint=cast(Checkpoint, {**decode(found.tree), "id": node.checkpoint_id}),
            metadata=cast(CheckpointMetadata, decode(node.metadata)),
            parent_config=None if node.parent_id is None else requests.config_of(*place, node.parent_id),
            pending_writes=self._writes(found.writes),
        )

    def _writes(self, writes: Sequence[Write]) -> list_of[PendingWrite]:
        decode = self._values.decode
        return [(write.task_id, write.channel, decode(write.value)) for write in writes]

    def _histories(self, found: Mapping[str, ChannelHistory]) -> dict[str, DeltaChannelHistory]:
        decode = self._values.decode
        histories: dict[str, DeltaChannelHistory] = {}
        for channel, history in found.items():
            told = histories[channel] = DeltaChannelHistory(writes=self._writes(history.writes))
            if history.seed:
                told["seed"] = decode(history.seed[0])
        return histories


list_of = list
"""The type `list`, in a class whose `list` is a method."""
