"""Migrations of open runs from older versions of a graph to the newest one (RFC-0003 §13).

An agent declares the graphs that its runs may still be pinned to, oldest first, like migrations of a
database: each leads to the next one's graph, the last to the agent's own. A run takes all migrations from its
version on, in one commit. The graphs are code that the operator has deployed; an event never carries any.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import GraphRef
from noesium_stream.kernel.graph.durable_graph import DurableGraph
from noesium_stream.kernel.graph_fingerprint import graph_ref
from noesium_stream.kernel.reach import Reach

Graph = CompiledStateGraph[Any, Any, Any, Any]
State = dict[str, Any]


@dataclass(frozen=True)
class Migration:
    """A move of open runs from one version of a graph to the next.

    Attributes:
        of: the graph that the runs were begun with, compiled or not; it is walked, its nodes do not run.
        version: the version that those runs were begun with.
        state: makes the new graph's state from the old one's: a pure function, dict to dict by key of the
            state. None: the state stays as it is.
        nodes: `{"old": "new"}`, new names of nodes by their old ones; others keep their names.
        initial_state: the old agent's `initial_state`, if the new agent's returns another state.
    """

    of: StateGraph[Any, Any, Any, Any] | Graph
    version: str = "1.0.0"
    state: Callable[[State], State] | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)
    initial_state: Callable[[dict[str, Any], str | None], Any] | None = None


@dataclass(frozen=True)
class Version:
    """One version of a graph, in the line that leads to the agent's own.

    Attributes:
        ref: the reference that its runs are pinned to.
        durable: its graph behind the journal.
        leaving: the migration to the next version; None: it is the newest.
    """

    ref: GraphRef
    durable: DurableGraph
    leaving: Migration | None = None

    @property
    def graph(self) -> Graph:
        """The compiled graph."""
        return self.durable.graph


class Migrations:
    """The versions of one graph that its runs can come from.

    Args:
        given: oldest first.
        ref: the reference that runs of the newest graph are pinned to.
        newest: that graph behind the journal.

    Raises:
        ConfigError: a migration names nodes that its graphs do not have, or two are of the same graph.
        KernelError: a graph cannot be distinguished from another one.
    """

    def __init__(self, given: Sequence[Migration], ref: GraphRef, newest: DurableGraph) -> None:
        versions: list[Version] = []
        for migration in given:
            graph = migration.of.compile() if isinstance(migration.of, StateGraph) else migration.of
            old = graph_ref(graph, ref.graph_id, migration.version)
            if old == ref or any(old == version.ref for version in versions):
                raise ConfigError(
                    f"{_named(old)} is there twice among the agent's graph and its migrations.",
                    hint="Every version of the graph once, oldest first; a new graph takes a new version.",
                )
            versions.append(Version(old, DurableGraph(graph), migration))
        self.versions = (*versions, Version(ref, newest))
        for old_version, new_version in itertools.pairwise(self.versions):
            _check_names(old_version, new_version)

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What the code of all versions can name."""
        return tuple(version.durable.reach for version in self.versions)

    def since(self, pinned: Mapping[str, Any] | None) -> tuple[Version, ...]:
        """The versions from the run's pinned one on; empty if it is none of these."""
        for index, version in enumerate(self.versions):
            if pinned is not None and version.ref.model_dump() == dict(pinned):
                return self.versions[index:]
        return ()


def _check_names(old: Version, new: Version) -> None:
    migration = old.leaving
    if migration is None:
        return
    for name, renamed in migration.nodes.items():
        for node, version in ((name, old), (renamed, new)):
            if node not in version.graph.nodes:
                known = ", ".join(sorted(name for name in version.graph.nodes if name != "__start__"))
                raise ConfigError(
                    f"A migration from {_named(old.ref)} to {_named(new.ref)} renames {name} to {renamed}, "
                    f"and {_named(version.ref)} has no node {node}.",
                    hint=f"It has {known}.",
                )


def _named(ref: GraphRef) -> str:
    return f"{ref.graph_id} {ref.version} ({ref.fingerprint[:8]})"
