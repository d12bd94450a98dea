"""Events of `LogCheckpointer`: LangGraph's checkpoints as deltas, and their deletion and copying.

All are in one partition, so that every reader folds them in the same order; a deletion, a copy and a pruning
are facts like any other. Deltas are described in `noesium_stream.kernel.checkpointer.delta`, the encoding of
values in `….checkpointer.values`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Name, Names, Text, Whole


class CheckpointSaved(StandardEvent, event_type="checkpoint.saved"):
    """A checkpoint of a thread: `body` is its delta against the one saved by event `base`, or the whole.

    `weight` is the delta's size in bytes of JSON. A body larger than one record precedes it in `parts`
    records of type `checkpoint.part.saved`; `body` is then null.
    """

    thread_id: Name
    namespace: Name
    checkpoint_id: Name
    parent_id: Name | None = None
    base: Name | None = None
    weight: Whole = Field(ge=0)
    parts: Whole = Field(default=0, ge=0)
    body: Any = None


class CheckpointWritesSaved(StandardEvent, event_type="checkpoint.writes.saved"):
    """The writes of a task on top of a checkpoint: `body` is a list of [index, channel, value].

    `parts` as in `checkpoint.saved`.
    """

    thread_id: Name
    namespace: Name
    checkpoint_id: Name
    task_id: Name
    task_path: Name = ""
    parts: Whole = Field(default=0, ge=0)
    body: Any = None


class CheckpointPartSaved(StandardEvent, event_type="checkpoint.part.saved"):
    """A piece of the JSON text of a body that is too large for one record; `record` is its event's id."""

    thread_id: Name
    record: Text
    index: Whole = Field(ge=0)
    text: Text


class CheckpointThreadDeleted(StandardEvent, event_type="checkpoint.thread.deleted"):
    """A thread is deleted, with all of its namespaces and writes."""

    thread_id: Name


class CheckpointThreadCopied(StandardEvent, event_type="checkpoint.thread.copied"):
    """The whole content of `source_thread_id` at this moment is copied to `thread_id`."""

    thread_id: Name
    source_thread_id: Name


class CheckpointRunsDeleted(StandardEvent, event_type="checkpoint.runs.deleted"):
    """The checkpoints whose metadata name one of these runs are deleted, with their writes."""

    run_ids: Names


class CheckpointThreadsPruned(StandardEvent, event_type="checkpoint.threads.pruned"):
    """These threads keep the latest checkpoint of each namespace (`keep_latest`), or nothing."""

    thread_ids: Names
    strategy: Literal["keep_latest", "delete"]
