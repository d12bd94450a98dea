"""What `LogCheckpointer` keeps: LangGraph's checkpoints as deltas, and what happened to them.

All of them lie in one partition, so that every reader folds them in the same order; a deletion, a copy
and a pruning are facts like any other. What a checkpoint is against another one is said in
`noesium_stream.kernel.checkpoint_delta`, how values are written in `…checkpoint_values`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from noesium_stream.event.domain import DomainEvent


class CheckpointSaved(DomainEvent, event_type="checkpoint.saved"):
    """A checkpoint of a thread: `body` is its delta against the one saved by event `base`, or the whole.

    `weight` is the delta's size in bytes of JSON. A body of more than one record precedes it in `parts`
    records of type `checkpoint.part.saved`; `body` is then null.
    """

    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None = None
    base: str | None = None
    weight: int = Field(ge=0)
    parts: int = Field(default=0, ge=0)
    body: Any = None


class CheckpointWritesSaved(DomainEvent, event_type="checkpoint.writes.saved"):
    """What a task wrote on top of a checkpoint: `body` is a list of [index, channel, value].

    `parts` as in `checkpoint.saved`.
    """

    thread_id: str
    namespace: str
    checkpoint_id: str
    task_id: str
    task_path: str = ""
    parts: int = Field(default=0, ge=0)
    body: Any = None


class CheckpointPartSaved(DomainEvent, event_type="checkpoint.part.saved"):
    """A piece of the JSON text of a body that is too large for one record; `record` is its event's id."""

    thread_id: str
    record: str
    index: int = Field(ge=0)
    text: str


class CheckpointThreadDeleted(DomainEvent, event_type="checkpoint.thread.deleted"):
    """A thread is gone, with all of its namespaces and writes."""

    thread_id: str


class CheckpointThreadCopied(DomainEvent, event_type="checkpoint.thread.copied"):
    """All that `source_thread_id` had at this moment is now in `thread_id` too."""

    thread_id: str
    source_thread_id: str


class CheckpointRunsDeleted(DomainEvent, event_type="checkpoint.runs.deleted"):
    """The checkpoints whose metadata name one of these runs are gone, with their writes."""

    run_ids: list[str]


class CheckpointThreadsPruned(DomainEvent, event_type="checkpoint.threads.pruned"):
    """Of these threads the latest checkpoint of each namespace is left (`keep_latest`), or nothing."""

    thread_ids: list[str]
    strategy: Literal["keep_latest", "delete"]
