"""Durable, replayable agents on an event log.

What most programs need can be imported from here; it is loaded when it is first asked for, because a
program that only appends events should not wait for LangGraph.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from noesium_stream.agent import BaseAgent, BaseGraphicAgent, BaseResearcher, agent_of, agent_of_tools
    from noesium_stream.capability import tool_capability
    from noesium_stream.client import Client, SyncClient
    from noesium_stream.client.checkpoints import CheckpointManager
    from noesium_stream.client.executor import KernelExecutor
    from noesium_stream.config import AgentConfig, ExecutionMode, NoesiumConfig, load_config
    from noesium_stream.errors import NoesiumError
    from noesium_stream.event import DomainEvent, EventEnvelope
    from noesium_stream.event.standard import SideEffectClass
    from noesium_stream.kernel import (
        Durability,
        LogCheckpointer,
        Migration,
        Retries,
        current_step,
        kernel_compensation,
        kernel_node,
    )
    from noesium_stream.log import EventLog, open_log
    from noesium_stream.projection import (
        AttachedProjection,
        BaseProjection,
        Projection,
        ProjectionEngine,
        catch_up,
        compose,
    )
    from noesium_stream.worker import Worker

__all__ = [
    "AgentConfig",
    "AttachedProjection",
    "BaseAgent",
    "BaseGraphicAgent",
    "BaseProjection",
    "BaseResearcher",
    "CheckpointManager",
    "Client",
    "DomainEvent",
    "Durability",
    "EventEnvelope",
    "EventLog",
    "ExecutionMode",
    "KernelExecutor",
    "LogCheckpointer",
    "Migration",
    "NoesiumConfig",
    "NoesiumError",
    "Projection",
    "ProjectionEngine",
    "Retries",
    "SideEffectClass",
    "SyncClient",
    "Worker",
    "agent_of",
    "agent_of_tools",
    "catch_up",
    "compose",
    "current_step",
    "kernel_compensation",
    "kernel_node",
    "load_config",
    "open_log",
    "tool_capability",
]

_LAYERS: Final = {
    "agent": ("BaseAgent", "BaseGraphicAgent", "BaseResearcher", "agent_of", "agent_of_tools"),
    "capability": ("tool_capability",),
    "client": ("Client", "SyncClient"),
    "client.checkpoints": ("CheckpointManager",),
    "client.executor": ("KernelExecutor",),
    "config": ("AgentConfig", "ExecutionMode", "NoesiumConfig", "load_config"),
    "errors": ("NoesiumError",),
    "event": ("DomainEvent", "EventEnvelope"),
    "event.standard": ("SideEffectClass",),
    "kernel": (
        "Durability",
        "LogCheckpointer",
        "Migration",
        "Retries",
        "current_step",
        "kernel_compensation",
        "kernel_node",
    ),
    "log": ("EventLog", "open_log"),
    "projection": (
        "AttachedProjection",
        "BaseProjection",
        "Projection",
        "ProjectionEngine",
        "catch_up",
        "compose",
    ),
    "worker": ("Worker",),
}
_LAYER_OF: Final = {name: layer for layer, names in _LAYERS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAYER_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAYER_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
