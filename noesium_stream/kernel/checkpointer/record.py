"""The records of a checkpointer: a delta or a whole tree, in one record or in several.

Decision record: a whole is written again when the deltas since the last one outweigh it 32 times. With once
instead, the wholes of a growing conversation cost up to twice its deltas, and the growth in bytes depends on
whether one falls between N and 2N steps (2.0 to 2.8). With 32 they cost 3%, and a checkpoint is at most 33
times its own size away from the last whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.errors import RecordTooLargeError
from noesium_stream.kernel.checkpointer.delta import diff
from noesium_stream.kernel.checkpointer.fold import Node
from noesium_stream.kernel.checkpointer.values import Tree, same, size_of

CHAIN_LIMIT: Final = 32
"""How many times the deltas since the last whole may outweigh it."""
MAX_WHOLE_BYTES: Final = 500_000
"""Larger wholes, which take more than one record, are written only if there is no base for a delta."""
PART_CHARACTERS: Final = 200_000
"""Size of one part of a large body; a character takes up to four bytes in a record of a million."""
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Largest total size of a body: a checkpoint's delta, or a task's writes."""

Fill = Callable[[str], Tree]
"""Encodes a channel's value."""


class Save(NamedTuple):
    """A checkpoint to save.

    `rest` is the checkpoint without its id and its channels' values. `values` holds the values of `changed`
    channels (a channel without one is empty now). `others` have values too: those of the parent if the
    versions agree, else `fill` encodes them.
    """

    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    rest: dict[str, Tree]
    metadata: dict[str, Tree]
    changed: frozenset[str]
    values: dict[str, Tree]
    others: frozenset[str]
    fill: Fill


class Content(NamedTuple):
    """The body of a record that saves a checkpoint, the base of its delta, and its weight."""

    body: Tree
    base: Node | None
    weight: int


def content(save: Save, base: Node | None, parent: Node | None, before: Tree) -> Content:
    """The content of a checkpoint's record: a delta against `base` if that is worthwhile.

    `before` is the tree of `parent`, which provides the unchanged values.
    """
    tree = _tree(save, None if parent is None else before)
    if base is not None:
        delta = diff(before, tree)
        weight = size_of(delta)
        if not _is_due(base, weight) or size_of(tree) > max(MAX_WHOLE_BYTES, weight):
            body = {"checkpoint": delta, "metadata": diff(base.metadata, save.metadata)}
            return Content(body, base, weight)
    return Content({"checkpoint": tree, "metadata": save.metadata}, None, size_of(tree))


def _tree(save: Save, before: Tree) -> Tree:
    """The checkpoint as a tree that shares unchanged parts with the parent's."""
    old_values: dict[str, Tree] = {} if before is None else before["channel_values"]
    old_versions: dict[str, Tree] = {} if before is None else before["channel_versions"]
    versions: dict[str, Tree] = save.rest["channel_versions"]
    values: dict[str, Tree] = {}
    for channel in sorted({*versions, *save.others, *save.values}):
        if channel in save.changed:
            if channel in save.values:
                values[channel] = save.values[channel]
        elif (
            channel in old_values
            and channel in versions
            and same(old_versions.get(channel), versions[channel])
        ):
            values[channel] = old_values[channel]
        elif channel in save.others:
            values[channel] = save.fill(channel)
    return {**save.rest, "channel_values": values}


def _is_due(base: Node, weight: int) -> bool:
    """Whether a new whole is worth its bytes."""
    return weight >= base.whole or base.chain + weight > CHAIN_LIMIT * base.whole


def split(body: Tree, payload: dict[str, Any]) -> list[str]:
    """The texts of a body's parts; none if it fits into its own record."""
    data = orjson.dumps(body)
    if len(data) > MAX_BODY_BYTES:
        raise RecordTooLargeError(
            f"Checkpoint {payload['checkpoint_id']} of thread {payload['thread_id']} takes "
            f"{len(data):,} bytes, the checkpointer takes {MAX_BODY_BYTES:,}.",
            hint="Keep large content elsewhere and put its address and hash into the state.",
        )
    if len(data) <= MAX_WHOLE_BYTES:
        return []
    text = data.decode()
    return [text[start : start + PART_CHARACTERS] for start in range(0, len(text), PART_CHARACTERS)]
