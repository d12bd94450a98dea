"""The checkpoints of all threads: a fold over the records of `LogCheckpointer`.

A checkpoint is a node that points to the base of its delta, whether the base is still listed or not. Deleting
or replacing a checkpoint therefore never breaks those that depend on it. Checkpoints that survive a deletion
are folded to whole trees, so that the deleted content leaves the memory too. The fold is pure: every process
that has read the same records has the same nodes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from noesium_stream.kernel.checkpointer.delta import apply
from noesium_stream.kernel.checkpointer.values import Tree, size_of

KEEP_TREES: Final = 256
"""Largest number of cached trees besides the whole ones."""
STRIDE: Final = 32
"""Distance of cached trees along a chain: a history is read from its end to its beginning."""
DELTA_COUNTERS: Final = "counters_since_delta_snapshot"
"""LangGraph metadata that names the channels whose values are stored in their writes only."""

Place = tuple[str, str]
"""Namespace and checkpoint id."""


class Write(NamedTuple):
    """A task's write to a channel."""

    task_id: str
    channel: str
    value: Tree
    task_path: str


class ChannelHistory(NamedTuple):
    """Writes to one channel, oldest first, on top of `seed`, the nearest value (none: empty)."""

    writes: list[Write]
    seed: list[Tree]


class Node:
    """A checkpoint: `delta` against `prev`, or `tree` alone. With `prev`, `tree` is only a cache."""

    __slots__ = (
        "carried",
        "chain",
        "checkpoint_id",
        "delta",
        "metadata",
        "namespace",
        "parent_id",
        "prev",
        "rev",
        "thread_id",
        "tree",
        "whole",
    )

    def __init__(
        self, rev: str, thread_id: str, namespace: str, checkpoint_id: str, parent_id: str | None
    ) -> None:
        self.rev = rev
        self.thread_id = thread_id
        self.namespace = namespace
        self.checkpoint_id = checkpoint_id
        self.parent_id = parent_id
        self.prev: Node | None = None
        self.delta: Any = None
        self.tree: Tree = None
        self.metadata: dict[str, Tree] = {}
        self.whole = self.chain = 0
        self.carried: dict[str, ChannelHistory] = {}


class Thread:
    """The checkpoints and writes of one thread."""

    __slots__ = ("namespaces", "revs", "writes")

    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, Node]] = {}
        self.revs: dict[str, Node] = {}
        self.writes: dict[Place, dict[tuple[str, int], Write]] = {}


class Fold:
    """Threads by id; `save` and the other methods take the records in order."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.orphans: set[str] = set()
        self._ready: OrderedDict[Node, None] = OrderedDict()

    def node(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Node | None:
        """The checkpoint of this id, or the latest one of the namespace."""
        thread = self.threads.get(thread_id)
        nodes = None if thread is None else thread.namespaces.get(namespace)
        if not nodes:
            return None
        return nodes.get(max(nodes) if checkpoint_id is None else checkpoint_id)

    def nodes(self, thread_id: str | None, namespace: str | None) -> list[Node]:
        """All checkpoints, or those of a thread or namespace; newest first."""
        threads = self.threads.values() if thread_id is None else [self.threads.get(thread_id, Thread())]
        found = [
            node
            for thread in threads
            for name, nodes in thread.namespaces.items()
            if namespace is None or name == namespace
            for node in nodes.values()
        ]
        return sorted(found, key=lambda node: node.checkpoint_id, reverse=True)

    def writes(self, node: Node) -> list[Write]:
        """The writes on top of a checkpoint, in the order of LangGraph's `writes_sort_key`."""
        thread = self.threads.get(node.thread_id)
        stored = {} if thread is None else thread.writes.get((node.namespace, node.checkpoint_id), {})
        ordered = sorted(stored, key=lambda key: (stored[key].task_path, *key))
        return [stored[key] for key in ordered]

    def tree(self, node: Node) -> Tree:
        """The full tree of a checkpoint; not to be changed."""
        chain = []
        top = node
        while top.tree is None and top.prev is not None:
            chain.append(top)
            top = top.prev
        tree = top.tree
        for left, link in zip(range(len(chain) - 1, -1, -1), reversed(chain), strict=True):
            tree = apply(tree, link.delta)
            if left % STRIDE == 0:
                self._keep(link, tree)
        if node in self._ready:
            self._ready.move_to_end(node)
        return tree

    def save(self, rev: str, record: dict[str, Any], body: Tree) -> None:
        """Apply `checkpoint.saved`: a new checkpoint, or new content of a known one.

        If its base was deleted before it arrived, it is not a checkpoint; its writer finds it in `orphans`
        and saves it again.
        """
        thread = self.threads.setdefault(record["thread_id"], Thread())
        place = record["namespace"], record["checkpoint_id"]
        node = Node(rev, record["thread_id"], *place, record["parent_id"])
        base = record["base"]
        if base is None:
            node.tree, node.metadata, node.whole = body["checkpoint"], body["metadata"], record["weight"]
        else:
            node.prev = thread.revs.get(base)
            if node.prev is None:
                self.orphans.add(rev)
                return
            node.delta = body["checkpoint"]
            node.metadata = apply(node.prev.metadata, body["metadata"])
            node.whole, node.chain = node.prev.whole, node.prev.chain + record["weight"]
        thread.namespaces.setdefault(place[0], {})[place[1]] = thread.revs[rev] = node

    def write(self, record: dict[str, Any], body: Tree) -> None:
        """Apply `checkpoint.writes.saved`: keep the first write at a position; overwrite special channels."""
        thread = self.threads.setdefault(record["thread_id"], Thread())
        writes = thread.writes.setdefault((record["namespace"], record["checkpoint_id"]), {})
        task_id, task_path = record["task_id"], record["task_path"]
        for index, channel, value in body:
            if index < 0 or (task_id, index) not in writes:
                writes[task_id, index] = Write(task_id, channel, value, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Apply `checkpoint.thread.deleted`."""
        thread = self.threads.pop(thread_id, None)
        if thread is not None:
            self._forget(thread.revs.values())

    def delete_runs(self, run_ids: Iterable[str]) -> None:
        """Apply `checkpoint.runs.deleted`."""
        runs = set(run_ids)
        for thread in self.threads.values():
            gone = {node for node in listed(thread) if _run_of(node) in runs}
            if gone:
                self._drop(thread, gone)

    def prune(self, thread_ids: Iterable[str], strategy: str) -> None:
        """Apply `checkpoint.threads.pruned`."""
        for thread_id in thread_ids:
            thread = self.threads.get(thread_id)
            if strategy == "delete" or thread is None:
                self.delete_thread(thread_id)
                continue
            latest = {nodes[max(nodes)] for nodes in thread.namespaces.values() if nodes}
            self._drop(thread, set(listed(thread)) - latest)

    def copy(self, rev: str, source_id: str, target_id: str) -> None:
        """Apply `checkpoint.thread.copied`: the source's checkpoints and writes, over those of the target."""
        source = self.threads.get(source_id)
        if source is None or source_id == target_id:
            return
        target = self.threads.setdefault(target_id, Thread())
        copies: dict[Node, Node] = {}
        for node in source.revs.values():
            copy = Node(f"{rev}/{node.rev}", target_id, node.namespace, node.checkpoint_id, node.parent_id)
            copy.delta, copy.metadata = node.delta, node.metadata
            copy.whole, copy.chain, copy.carried = node.whole, node.chain, node.carried
            # A base comes before the checkpoints that depend on it, so it has been copied already.
            copy.prev = None if node.prev is None else copies.get(node.prev, node.prev)
            copy.tree = node.tree if node.prev is None else None
            target.revs[copy.rev] = copies[node] = copy
        for node in listed(source):
            target.namespaces.setdefault(node.namespace, {})[node.checkpoint_id] = copies[node]
        for place, writes in source.writes.items():
            target.writes[place] = dict(writes)

    def history(self, node: Node, channels: Iterable[str]) -> dict[str, ChannelHistory]:
        """LangGraph's `get_delta_channel_history` of a node's ancestors, per channel."""
        found = {channel: ChannelHistory([], []) for channel in channels}
        open_channels = set(found)
        ancestor: Node | None = node
        while ancestor is not None and open_channels:
            above = self._parent(ancestor)
            if above is None:
                self._take_carried(ancestor, found, open_channels)
            else:
                self._take_ancestor(above, found, open_channels)
            ancestor = above
        for history in found.values():
            history.writes.reverse()
        return found

    def _take_ancestor(self, node: Node, found: dict[str, ChannelHistory], channels: set[str]) -> None:
        for write in reversed(self.writes(node)):
            if write.channel in channels:
                found[write.channel].writes.append(write)
        values = self.tree(node)["channel_values"]
        for channel in [channel for channel in channels if channel in values]:
            found[channel].seed.append(values[channel])
            channels.discard(channel)

    def _take_carried(self, node: Node, found: dict[str, ChannelHistory], channels: set[str]) -> None:
        for channel in channels & node.carried.keys():
            found[channel].writes.extend(reversed(node.carried[channel].writes))
            found[channel].seed.extend(node.carried[channel].seed)

    def _parent(self, node: Node) -> Node | None:
        if node.parent_id is None or node.parent_id == node.checkpoint_id:
            return None
        return self.node(node.thread_id, node.namespace, node.parent_id)

    def _drop(self, thread: Thread, gone: set[Node]) -> None:
        """Remove checkpoints; those that depended on one of them become independent."""
        # 1. While everything is there: collect what the remaining ones need from the removed ones.
        stay = [node for node in listed(thread) if node not in gone]
        for node in stay:
            if self._parent(node) in gone:
                node.carried = self.history(node, node.metadata.get(DELTA_COUNTERS, ()))
        keep = set(stay)
        whole = {node: self.tree(node) for node in stay if node.prev is not None and node.prev not in keep}
        # 2. Make the dependent ones whole.
        for node, tree in whole.items():
            node.tree, node.prev, node.delta = tree, None, None
            node.whole, node.chain = size_of(tree), 0
            self._ready.pop(node, None)
        # 3. Remove the others with their writes, and replaced contents.
        removed = [node for node in thread.revs.values() if node not in keep]
        self._forget(removed)
        for node in removed:
            del thread.revs[node.rev]
        for node in gone:
            del thread.namespaces[node.namespace][node.checkpoint_id]
            thread.writes.pop((node.namespace, node.checkpoint_id), None)

    def _forget(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._ready.pop(node, None)

    def _keep(self, node: Node, tree: Tree) -> None:
        node.tree = tree
        self._ready[node] = None
        if len(self._ready) > KEEP_TREES:
            oldest, _ = self._ready.popitem(last=False)
            oldest.tree = None


def listed(thread: Thread) -> Iterator[Node]:
    """The checkpoints of a thread that were neither deleted nor replaced."""
    return (node for nodes in thread.namespaces.values() for node in nodes.values())


def _run_of(node: Node) -> str | None:
    run_id = node.metadata.get("run_id")
    return run_id if isinstance(run_id, str) else None
