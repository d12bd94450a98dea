"""Versions of one agent that a worker carries: the one that new runs start with, and others.

An open run goes on with the graph that it is pinned to, if the worker carries that graph. Otherwise it is
moved to the first graph that has a migration from the pinned one: that of new runs is tried first, then the
others in the given order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.capabilities.version import in_range
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import CALLS
from noesium_stream.event.standard import GraphRef


class Release(NamedTuple):
    """One version of an agent: the agent, the graph that its runs are pinned to, and their `on_failure`."""

    agent: BaseGraphicAgent
    graph: GraphRef
    on_failure: str | None


class Releases:
    """The versions of one agent type that a worker carries.

    Args:
        newest: the version that new runs start with.
        others: further versions that open runs may be pinned to, older or newer.

    Raises:
        ConfigError: a version is given twice.
        KernelError: a graph has no distinct fingerprint, or as `BaseGraphicAgent.declared_on_failure`.
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
                    hint="Another graph takes another version: `version` of its class, or VERSION in the "
                    "module of a graph.",
                )

    def carrying(self, pinned: Mapping[str, Any] | None) -> Release | None:
        """Find the release that can go on with a run pinned to a graph; None: none can.

        `pinned` is a `GraphRef` as a dict, as in events.
        """
        for release in self.all:
            if pinned is not None and release.graph.model_dump() == dict(pinned):
                return release
        return next((release for release in self.all if release.agent.versions.since(pinned)), None)

    def beginning(self, command: EventEnvelope) -> Release | None:
        """Find the release that a command's run starts with; None: the version asked for is not carried.

        A program may ask for a range of the agent's versions. A call asks for a version of a capability: the
        release must offer that version, or a later one of the same major version.
        """
        return next(
            (release for release in self.all if _does(release.agent, self.newest.agent, command)), None
        )

    def __str__(self) -> str:
        return ", ".join(map(named, self.graphs))


def asked_of(command: EventEnvelope) -> str:
    """Describe the version that a command asks for, for people."""
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
        return agent is newest  # this worker has not registered the capability
    return any(_fits(version, f"^{wanted}") for version in offered)


def _fits(version: str, wanted: str | None) -> bool:
    if wanted is None:
        return True
    try:
        return in_range(version, wanted)
    except ConfigError:
        return False  # one of the two is no valid version


def named(graph: GraphRef) -> str:
    """Name a version of a graph for people."""
    return f"{graph.graph_id} {graph.version} ({graph.fingerprint[:8]})"
