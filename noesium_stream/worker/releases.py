"""The versions of one agent that a worker carries: one that new runs begin with, and others.

An open run goes on with the graph that it is pinned to, if the worker carries it. Else it is moved to the
first graph that has a migration from it: that of new runs, then the others as they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import GraphRef


class Release(NamedTuple):
    """An agent, what runs are pinned to that it goes on with, and what its runs say of `on_failure`."""

    agent: BaseGraphicAgent
    graph: GraphRef
    on_failure: str | None


class Releases:
    """What a worker carries of one agent type.

    Args:
        newest: what new runs begin with.
        others: what open runs may be pinned to as well, older or newer.

    Raises:
        ConfigError: a version is there twice.
        KernelError: a graph cannot be told from another one; as `BaseGraphicAgent.declared_on_failure`.
    """

    def __init__(self, newest: BaseGraphicAgent, others: Sequence[BaseGraphicAgent] = ()) -> None:
        self.all: Final = tuple(
            Release(agent, agent.versions.versions[-1].ref, agent.declared_on_failure)
            for agent in (newest, *others)
        )
        self.newest: Final = self.all[0]
        self.graphs: Final = tuple(release.graph for release in self.all)
        for at, graph in enumerate(self.graphs):
            if graph in self.graphs[:at]:
                raise ConfigError(
                    f"The worker would carry {named(graph)} twice.",
                    hint="Another graph takes another version: VERSION in its module, or its class's.",
                )

    def carrying(self, pinned: Mapping[str, Any] | None) -> Release | None:
        """Which one goes on with a run that is pinned to this; None: no one can.

        `pinned` is a `GraphRef` as events have it.
        """
        for release in self.all:
            if pinned is not None and release.graph.model_dump() == dict(pinned):
                return release
        return next((release for release in self.all if release.agent.versions.since(pinned)), None)

    def __str__(self) -> str:
        return ", ".join(map(named, self.graphs))


def named(graph: GraphRef) -> str:
    """A version of a graph, for people."""
    return f"{graph.graph_id} {graph.version} ({graph.fingerprint[:8]})"
