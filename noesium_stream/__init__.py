"""Durable, replayable agents on an event log.

All that programs need can be imported from here, except what is for tests (`noesium_stream.testing`). It is
loaded when it is first asked for, because a program that only appends events should not wait for LangGraph.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from noesium_stream.agent.base import AgentContext, BaseAgent, BaseGraphicAgent, BaseResearcher
    from noesium_stream.agent.capability import capability
    from noesium_stream.agent.from_graph import agent_from_graph
    from noesium_stream.agent.from_tools import agent_from_tools
    from noesium_stream.agent.handler import BaseHandler
    from noesium_stream.capabilities.capability_set import CapabilitySet
    from noesium_stream.capabilities.discovery import DiscoveryService
    from noesium_stream.capabilities.registry import CapabilityRegistry
    from noesium_stream.capabilities.resolution import DeterministicResolver, Resolution
    from noesium_stream.capabilities.tools import tool_capability
    from noesium_stream.client.checkpoint_manager import CheckpointManager
    from noesium_stream.client.client import Client
    from noesium_stream.client.executor import KernelExecutor
    from noesium_stream.client.generations import GenerationInfo
    from noesium_stream.client.run import Run
    from noesium_stream.client.sync import SyncClient, SyncRun
    from noesium_stream.client.views.approvals import Approval
    from noesium_stream.client.views.runs import RunInfo
    from noesium_stream.client.views.tree_end import TreeEnd, TreeRun, Unstopped
    from noesium_stream.client.views.unresolved_effects import UnresolvedEffect
    from noesium_stream.client.views.waits import Wait
    from noesium_stream.client.views.workers import OwnedPartition
    from noesium_stream.config import AgentConfig, ExecutionMode, NoesiumConfig, load_config
    from noesium_stream.errors import (
        AgentError,
        AgentLoadError,
        ApprovalClosedError,
        ApprovalError,
        ApprovalExpiredError,
        BrokerError,
        CallLimitError,
        CapabilityError,
        CapabilityInputError,
        CapabilityNotFoundError,
        CapabilityOutputError,
        CheckpointError,
        CommitUnknownError,
        ConfigError,
        CorruptRecordError,
        DeadLetterError,
        DeadlineExceededError,
        EffectDecisionError,
        EffectFailedError,
        EventError,
        EventHeldError,
        EventStoreError,
        EventValidationError,
        FencedError,
        GraphError,
        ImpureProjectionError,
        InputDiffersError,
        KernelError,
        KeyElsewhereError,
        LogClosedError,
        LogCorruptError,
        LogForbiddenError,
        LogFullError,
        LogTruncatedError,
        LogUnavailableError,
        LogUnsupportedError,
        LogUrlError,
        MigrationError,
        NodeExecutionError,
        NoesiumError,
        NondeterminismError,
        OutcomeUnknownError,
        PermissionDeniedError,
        ProjectionError,
        ProjectionLoadError,
        ProjectionNotFoundError,
        RebuildDiffersError,
        RecordTooLargeError,
        RehearsalError,
        RemoteError,
        ReplayDivergenceError,
        RunCancelledError,
        RunEndedError,
        RunError,
        RunFailedError,
        RunNotFoundError,
        RunStrandedError,
        RunTimeoutError,
        ScriptEndedError,
        SequenceGapError,
        SignatureError,
        SnapshotError,
        StateBusyError,
        StateError,
        StateFileError,
        StateNotStoredError,
        StrictModeError,
        SubagentAnswerError,
        SubagentBusyError,
        SubagentError,
        SubagentExitedError,
        SubagentProtocolError,
        SubagentStartError,
        SubagentStateError,
        SubagentTimeoutError,
        TopicConfigError,
        TopicNotFoundError,
        UnknownSchemaError,
    )
    from noesium_stream.event.domain_event import DomainEvent
    from noesium_stream.event.envelope import AgentRef, EventEnvelope
    from noesium_stream.event.rules.stream_pieces import Piece
    from noesium_stream.event.standard.capability import (
        Capability,
        CapabilityType,
        DeterminismClass,
        LatencyClass,
        SideEffectClass,
    )
    from noesium_stream.kernel.checkpointer.log_checkpointer import LogCheckpointer
    from noesium_stream.kernel.decorators import kernel_compensation, kernel_node
    from noesium_stream.kernel.migration.migration import Migration
    from noesium_stream.kernel.modes import ModelParameters
    from noesium_stream.kernel.retry import Retries
    from noesium_stream.kernel.run_context import Durability
    from noesium_stream.kernel.state.typed_json import kernel_type
    from noesium_stream.kernel.step.answer import Answer
    from noesium_stream.kernel.step.step import Step, current_step
    from noesium_stream.llm.base import BaseLLMClient, JournaledLLM
    from noesium_stream.llm.langchain import LangChainLLM
    from noesium_stream.log.open import open_log
    from noesium_stream.log.port import EventLog, Position
    from noesium_stream.log.record import Record
    from noesium_stream.projection.attached import AttachedProjection
    from noesium_stream.projection.base import BaseProjection, fold_to_end
    from noesium_stream.projection.builtin.cognitive import CognitiveProjection
    from noesium_stream.projection.builtin.embedding import WordLlamaEmbedder
    from noesium_stream.projection.builtin.execution import ExecutionProjection
    from noesium_stream.projection.builtin.index import IndexProjection
    from noesium_stream.projection.builtin.semantic import SemanticIndex
    from noesium_stream.projection.compose import compose
    from noesium_stream.projection.engine import ProjectionEngine
    from noesium_stream.projection.event_headers import EventHeaders
    from noesium_stream.projection.stored.stored_projection import open_stored_projection
    from noesium_stream.subagent.agent import cli_subagent
    from noesium_stream.subagent.protocol import JsonLines
    from noesium_stream.subagent.text_lines import TextLines
    from noesium_stream.worker.worker import Worker

__all__ = [
    "AgentConfig",
    "AgentContext",
    "AgentError",
    "AgentLoadError",
    "AgentRef",
    "Answer",
    "Approval",
    "ApprovalClosedError",
    "ApprovalError",
    "ApprovalExpiredError",
    "AttachedProjection",
    "BaseAgent",
    "BaseGraphicAgent",
    "BaseHandler",
    "BaseLLMClient",
    "BaseProjection",
    "BaseResearcher",
    "BrokerError",
    "CallLimitError",
    "Capability",
    "CapabilityError",
    "CapabilityInputError",
    "CapabilityNotFoundError",
    "CapabilityOutputError",
    "CapabilityRegistry",
    "CapabilitySet",
    "CapabilityType",
    "CheckpointError",
    "CheckpointManager",
    "Client",
    "CognitiveProjection",
    "CommitUnknownError",
    "ConfigError",
    "CorruptRecordError",
    "DeadLetterError",
    "DeadlineExceededError",
    "DeterminismClass",
    "DeterministicResolver",
    "DiscoveryService",
    "DomainEvent",
    "Durability",
    "EffectDecisionError",
    "EffectFailedError",
    "EventEnvelope",
    "EventError",
    "EventHeaders",
    "EventHeldError",
    "EventLog",
    "EventStoreError",
    "EventValidationError",
    "ExecutionMode",
    "ExecutionProjection",
    "FencedError",
    "GenerationInfo",
    "GraphError",
    "ImpureProjectionError",
    "IndexProjection",
    "InputDiffersError",
    "JournaledLLM",
    "JsonLines",
    "KernelError",
    "KernelExecutor",
    "KeyElsewhereError",
    "LangChainLLM",
    "LatencyClass",
    "LogCheckpointer",
    "LogClosedError",
    "LogCorruptError",
    "LogForbiddenError",
    "LogFullError",
    "LogTruncatedError",
    "LogUnavailableError",
    "LogUnsupportedError",
    "LogUrlError",
    "Migration",
    "MigrationError",
    "ModelParameters",
    "NodeExecutionError",
    "NoesiumConfig",
    "NoesiumError",
    "NondeterminismError",
    "OutcomeUnknownError",
    "OwnedPartition",
    "PermissionDeniedError",
    "Piece",
    "Position",
    "ProjectionEngine",
    "ProjectionError",
    "ProjectionLoadError",
    "ProjectionNotFoundError",
    "RebuildDiffersError",
    "Record",
    "RecordTooLargeError",
    "RehearsalError",
    "RemoteError",
    "ReplayDivergenceError",
    "Resolution",
    "Retries",
    "Run",
    "RunCancelledError",
    "RunEndedError",
    "RunError",
    "RunFailedError",
    "RunInfo",
    "RunNotFoundError",
    "RunStrandedError",
    "RunTimeoutError",
    "ScriptEndedError",
    "SemanticIndex",
    "SequenceGapError",
    "SideEffectClass",
    "SignatureError",
    "SnapshotError",
    "StateBusyError",
    "StateError",
    "StateFileError",
    "StateNotStoredError",
    "Step",
    "StrictModeError",
    "SubagentAnswerError",
    "SubagentBusyError",
    "SubagentError",
    "SubagentExitedError",
    "SubagentProtocolError",
    "SubagentStartError",
    "SubagentStateError",
    "SubagentTimeoutError",
    "SyncClient",
    "SyncRun",
    "TextLines",
    "TopicConfigError",
    "TopicNotFoundError",
    "TreeEnd",
    "TreeRun",
    "UnknownSchemaError",
    "UnresolvedEffect",
    "Unstopped",
    "Wait",
    "WordLlamaEmbedder",
    "Worker",
    "agent_from_graph",
    "agent_from_tools",
    "capability",
    "cli_subagent",
    "compose",
    "current_step",
    "fold_to_end",
    "kernel_compensation",
    "kernel_node",
    "kernel_type",
    "load_config",
    "open_log",
    "open_stored_projection",
    "tool_capability",
]

_MODULES: Final = {
    "agent.base": (
        "AgentContext",
        "BaseAgent",
        "BaseGraphicAgent",
        "BaseResearcher",
    ),
    "agent.capability": ("capability",),
    "agent.from_graph": ("agent_from_graph",),
    "agent.from_tools": ("agent_from_tools",),
    "agent.handler": ("BaseHandler",),
    "capabilities.capability_set": ("CapabilitySet",),
    "capabilities.discovery": ("DiscoveryService",),
    "capabilities.registry": ("CapabilityRegistry",),
    "capabilities.resolution": ("DeterministicResolver", "Resolution"),
    "capabilities.tools": ("tool_capability",),
    "client.checkpoint_manager": ("CheckpointManager",),
    "client.client": ("Client",),
    "client.executor": ("KernelExecutor",),
    "client.generations": ("GenerationInfo",),
    "client.run": ("Run",),
    "client.sync": (
        "SyncClient",
        "SyncRun",
    ),
    "client.views.approvals": ("Approval",),
    "client.views.runs": ("RunInfo",),
    "client.views.tree_end": ("TreeEnd", "TreeRun", "Unstopped"),
    "client.views.unresolved_effects": ("UnresolvedEffect",),
    "client.views.waits": ("Wait",),
    "client.views.workers": ("OwnedPartition",),
    "config": (
        "AgentConfig",
        "ExecutionMode",
        "NoesiumConfig",
        "load_config",
    ),
    "event.domain_event": ("DomainEvent",),
    "event.envelope": (
        "AgentRef",
        "EventEnvelope",
    ),
    "event.rules.stream_pieces": ("Piece",),
    "event.standard.capability": (
        "Capability",
        "CapabilityType",
        "DeterminismClass",
        "LatencyClass",
        "SideEffectClass",
    ),
    "kernel.checkpointer.log_checkpointer": ("LogCheckpointer",),
    "kernel.decorators": (
        "kernel_compensation",
        "kernel_node",
    ),
    "kernel.migration.migration": ("Migration",),
    "kernel.modes": ("ModelParameters",),
    "kernel.retry": ("Retries",),
    "kernel.run_context": ("Durability",),
    "kernel.state.typed_json": ("kernel_type",),
    "kernel.step.answer": ("Answer",),
    "kernel.step.step": (
        "Step",
        "current_step",
    ),
    "llm.base": (
        "BaseLLMClient",
        "JournaledLLM",
    ),
    "llm.langchain": ("LangChainLLM",),
    "log.open": ("open_log",),
    "log.port": (
        "EventLog",
        "Position",
    ),
    "log.record": ("Record",),
    "projection.attached": ("AttachedProjection",),
    "projection.base": (
        "BaseProjection",
        "fold_to_end",
    ),
    "projection.builtin.cognitive": ("CognitiveProjection",),
    "projection.builtin.embedding": ("WordLlamaEmbedder",),
    "projection.builtin.execution": ("ExecutionProjection",),
    "projection.builtin.index": ("IndexProjection",),
    "projection.builtin.semantic": ("SemanticIndex",),
    "projection.compose": ("compose",),
    "projection.engine": ("ProjectionEngine",),
    "projection.event_headers": ("EventHeaders",),
    "projection.stored.stored_projection": ("open_stored_projection",),
    "subagent.agent": ("cli_subagent",),
    "subagent.protocol": ("JsonLines",),
    "subagent.text_lines": ("TextLines",),
    "worker.worker": ("Worker",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULE_OF.get(name, "errors")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
