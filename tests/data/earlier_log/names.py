"""The package's public names that the agents of this folder use; after a rename only this file changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from noesium_stream import (
    BaseProjection,
    DomainEvent,
    Durability,
    EventEnvelope,
    Migration,
    Retries,
    SideEffectClass,
    agent_from_graph,
    agent_from_tools,
    current_step,
    kernel_compensation,
)
from noesium_stream.agent import BaseHandler
from noesium_stream.event.standard import Capability

__all__ = [
    "SYNC",
    "BaseHandler",
    "BaseProjection",
    "DomainEvent",
    "EventEnvelope",
    "Migration",
    "agent_from_graph",
    "agent_from_tools",
    "ask",
    "call_tool",
    "compensation",
    "effect",
    "invoke",
    "now",
    "pure_capability",
    "signal",
    "sleep",
]

SYNC = Durability.SYNC

compensation = kernel_compensation()
"""Declares a function or a graph that undoes an effect; journals before this declaration name them, too."""


async def effect(name: str, function: Callable[..., Any], *args: Any, kind: str, **options: Any) -> Any:
    """An effect of the current step; `kind` is `pure`, `idempotent` or `external`."""
    return await current_step().effect(name, function, *args, effect_class=SideEffectClass(kind), **options)


async def effect_in_two_attempts(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """An external effect that is tried twice."""
    return await effect(name, function, *args, kind="external", retries=Retries(2, timedelta(0)))


async def invoke(capability: str, arguments: Mapping[str, Any]) -> Any:
    """A call of another agent's capability, of its first major version."""
    return await current_step().invoke(capability, arguments, version="^1")


async def call_tool(toolkit: str, tool: str, arguments: Mapping[str, Any]) -> Any:
    """A call of another agent's tool."""
    return await current_step().call_tool(toolkit, tool, arguments)


async def ask(question: str) -> dict[str, Any]:
    """A question to a person, and the parts of the answer."""
    answer = await current_step().interrupt(question)
    return {"approved": answer.approved, "value": answer.value, "by": answer.answered_by}


async def signal(name: str) -> Any:
    """The next signal of this name."""
    return await current_step().signal(name)


async def sleep(duration: timedelta) -> None:
    """A timer."""
    await current_step().sleep(duration)


def now() -> datetime:
    """The recorded time of the current step."""
    return current_step().now()


def pure_capability(name: str, schema: Mapping[str, Any]) -> Capability:
    """A capability without side effects that takes and gives the same."""
    return Capability(
        id=name,
        input_schema=dict(schema),
        output_schema=dict(schema),
        side_effects=SideEffectClass.PURE,
    )
