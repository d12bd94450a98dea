"""Agents that call one another, made in a line: a provider from a function, a caller from a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client, Run
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.event import AgentRef, EventEnvelope
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
RESULT = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}

Work = Callable[[dict[str, Any]], Any | Awaitable[Any]]


class State(TypedDict, total=False):
    n: int
    value: Any


class _Agent(BaseGraphicAgent):
    work: ClassVar[Any]
    then: ClassVar[Any] = None

    def get_state_class(self) -> type[Any]:
        return State

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(State)
        graph.add_node("work", type(self).work)
        graph.add_edge(START, "work")
        last = "work"
        if type(self).then is not None:
            graph.add_node("then", type(self).then)
            graph.add_edge(last, last := "then")
        graph.add_edge(last, END)
        return graph

    def result(self, state: dict[str, Any]) -> Any:
        return {"value": (state or {}).get("value")}


def offer(id: str = "sum.up", version: str = "1.0.0", **given: Any) -> Capability:
    """A capability that takes `n` and gives `value`, both whole numbers; `given` changes that."""
    return Capability(id=id, version=version, **{"input_schema": NUMBER, "output_schema": RESULT, **given})


def provider(agent_type: str, work: Work, *offers: Capability, **attributes: Any) -> type[BaseGraphicAgent]:
    """An agent whose one node is `work`; its capability is `sum.up`."""
    given = {"agent_type": agent_type, "work": staticmethod(work), "capabilities": offers or (offer(),)}
    return type(agent_type, (_Agent,), {**given, **attributes})


def caller(
    work: Work, agent_type: str = "caller", then: Work | None = None, **attributes: Any
) -> type[BaseGraphicAgent]:
    """An agent whose one node is `work`, with another one behind it if there is `then`; it offers nothing."""
    given = {"agent_type": agent_type, "work": staticmethod(work), "capabilities": ()}
    if then is not None:
        given["then"] = staticmethod(then)
    return type(agent_type, (_Agent,), {**given, **attributes})


PURE = {"side_effects": SideEffectClass.PURE}


def working(log: EventLog, home: Path, *agents: type[BaseGraphicAgent], **options: Any) -> Worker:
    """A worker of these agents."""
    return Worker(log, list(agents), home=home, **options)


async def events_of(run: Run, *types: str) -> list[EventEnvelope]:
    """The events of a run so far, of these types."""
    events = [event async for event in run.events(follow=False)]
    return [event for event in events if not types or event.event_type in types]


async def runs_of(client: Client, agent_type: str) -> list[Any]:
    """What the list of runs says of an agent's."""
    return [info for info in await client.list_runs() if info.agent_type == agent_type]


async def letters(log: EventLog) -> list[EventEnvelope]:
    """The dead letters so far."""
    dlq = log.topology.dlq
    return [record.envelope async for record in log.read(dlq, {}, until=await log.end(dlq))]


async def send(log: EventLog, event: DomainEvent, producer: str, run_id: str, to: str, **more: Any) -> None:
    """Put an event into the inbox of an agent type, as anybody can."""
    envelope = event.to_envelope(
        AgentRef(producer, producer), None, partition_key=run_id, metadata={"to": to}, **more
    )
    await log.append([envelope])


async def replayed(run: Run, agent: type[BaseGraphicAgent], log: EventLog) -> str:
    """What a replay of the run finds; empty: nothing."""
    return str((await verify(run, agent_target(agent, log))).difference or "")


def types(events: Sequence[EventEnvelope]) -> list[str]:
    return [event.event_type for event in events]
