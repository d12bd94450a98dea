"""Operations of `LogCheckpointer` on its store, in the form that its home runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import get_checkpoint_id

from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import (
    CheckpointRunsDeleted,
    CheckpointThreadCopied,
    CheckpointThreadsPruned,
)
from noesium_stream.kernel.checkpointer.fold import ChannelHistory, Node
from noesium_stream.kernel.checkpointer.loop_thread import Work
from noesium_stream.kernel.checkpointer.store import CheckpointStore, Found

PAGE: Final = 16
"""Number of checkpoints that a listing loads at a time."""
STRATEGIES: Final = ("keep_latest", "delete")


def thread_of(config: RunnableConfig) -> tuple[str, str]:
    """Thread id and namespace.

    Raises:
        ConfigError: there is no thread id.
    """
    configurable = config.get("configurable") or {}
    if "thread_id" not in configurable:
        raise ConfigError(
            "The config names no thread.", hint='Pass {"configurable": {"thread_id": "..."}} to the graph.'
        )
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns") or ""


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    }


def get(config: RunnableConfig) -> Work[Found | None]:
    """Find the checkpoint that `config` names, or the latest one."""
    thread_id, namespace = thread_of(config)
    checkpoint_id = get_checkpoint_id(config)
    return lambda store: store.get(thread_id, namespace, checkpoint_id)


def nodes(config: RunnableConfig | None) -> Work[list[Node]]:
    """List the checkpoints of all threads, of a thread, or of a namespace, newest first."""
    if config is None:
        return lambda store: store.nodes(None, None)
    thread_id, _ = thread_of(config)
    namespace = config["configurable"].get("checkpoint_ns")
    return lambda store: store.nodes(thread_id, namespace)


def load(nodes: Sequence[Node]) -> Work[list[Found]]:
    """Read the content of listed checkpoints."""
    return lambda store: store.load(nodes)


def pages(nodes: Sequence[Node]) -> Iterator[Sequence[Node]]:
    """Split the nodes into pages."""
    return (nodes[start : start + PAGE] for start in range(0, len(nodes), PAGE))


def history(config: RunnableConfig, channels: Sequence[str]) -> Work[dict[str, ChannelHistory]]:
    """See `Fold.history`."""
    thread_id, namespace = thread_of(config)
    checkpoint_id = get_checkpoint_id(config)
    return lambda store: store.history(thread_id, namespace, checkpoint_id, channels)


def tell(event: DomainEvent, key: str) -> Work[None]:
    """Append an event without a body, in the order of `key`."""

    async def tell(store: CheckpointStore) -> None:
        await store.tell(event, str(key))

    return tell


def delete_runs(run_ids: Sequence[str]) -> Work[None]:
    """Append the deletion of these runs' checkpoints."""
    return tell(CheckpointRunsDeleted(run_ids=[str(run_id) for run_id in run_ids]), run_ids[0])


def copy(source_thread_id: str, target_thread_id: str) -> Work[None]:
    """Append the copy of a thread."""
    event = CheckpointThreadCopied(thread_id=str(target_thread_id), source_thread_id=str(source_thread_id))
    return tell(event, target_thread_id)


def prune(thread_ids: Sequence[str], strategy: str) -> Work[None]:
    """Append the pruning of threads."""
    event = CheckpointThreadsPruned.model_validate(
        {"thread_ids": [str(thread_id) for thread_id in thread_ids], "strategy": strategy}
    )
    return tell(event, thread_ids[0])


def check_strategy(strategy: str) -> bool:
    """Check a pruning strategy; return True.

    Raises:
        ConfigError: the strategy is unknown.
    """
    if strategy not in STRATEGIES:
        raise ConfigError(
            f"{strategy!r} is no way to prune a thread.", hint=f"Use one of {', '.join(STRATEGIES)}."
        )
    return True
