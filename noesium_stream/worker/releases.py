"""The versions of one agent that a worker carries: one that new runs begin with, and others.

An open run goes on with the graph that it is pinned to, if the worker carries it. Else it is moved to the
first graph that has a migration from it: that of new runs, then the others as they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.capability import in_range
from noesium_stream.errors import ConfigError
from noesium_stream.event.calls import CALLS
from noesium_stream.event.envelope import EventEnvelope
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

    def beginning(self, command: EventEnvelope) -> Release | None:
        """Which one a command's run begins with; None: it asks for a version that is not carried.

        A program may ask for a range of the agent's versions. A call asks for a version of a capability: that
        one, or a later one of the same major version, which has to be offered.
        """
        return next(
            (release for release in self.all if _does(release.agent, self.newest.agent, command)), None
        )

    def __str__(self) -> str:
        return ", ".join(map(named, self.graphs))


def asked_of(command: EventEnvelope) -> str:
    """The version that a command asks for, for people."""
    payload = command.payload
    wanted = payload.get("agent_version")
    if wanted is not None:
        return f"version {wanted} of {payload['agent_type']}"
    return f"{payload['capability_id']} {payload['version']}"


def _does(agent: BaseGraphicAgent, newest: BaseGraphicAgent, command: EventEnvelope) -> bool:
    payload = command.payload
    if command.event_type not in CALLS:
        return _fits(agent.version, payload.get("agent_version"))
    wanted, id = payload.get("version"), payload.get("capability_id")
    offered = [one.version for one in agent.capabilities if one.id == id]
    if wanted is None or not offered:
        return agent is newest  # it was registered otherwise, if at all
    return any(_fits(version, f"^{wanted}") for version in offered)


def _fits(version: str, wanted: str | None) -> bool:
    try:
        return in_range(version, wanted)
    except ConfigError:
        return False  # one of them is no version


def named(graph: GraphRef) -> str:
    """A version of a graph, for people."""
    return f"{graph.graph_id} {graph.version} ({graph.fingerprint[:8]})"
