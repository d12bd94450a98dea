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
    from noesium_stream.agent.conversation import BaseHitlAgent
    from noesium_stream.agent.dialogue import Dialogue, Reply, UserMessage
    from noesium_stream.agent.from_graph import agent_from_graph
    from noesium_stream.agent.from_skill import agent_from_skill
    from noesium_stream.agent.from_tools import agent_from_tools
    from noesium_stream.agent.handler import BaseHandler
    from noesium_stream.agent.request import AgentRequest
    from noesium_stream.agent.watchdog import BaseWatchdog, Overdue
    from noesium_stream.capabilities.capability_set import CapabilitySet
    from noesium_stream.capabilities.discovery import DiscoveryService
    from noesium_stream.capabilities.registry import CapabilityRegistry
    from noesium_stream.capabilities.resolution import DeterministicResolver, Resolution
    from noesium_stream.capabilities.tools import tool_capability
    from noesium_stream.client.accounts import AccountClient, AccountInfo
    from noesium_stream.client.checkpoint_manager import CheckpointManager
    from noesium_stream.client.client import Client
    from noesium_stream.client.conversation import Conversation, ConversationTurn
    from noesium_stream.client.executor import KernelExecutor
    from noesium_stream.client.generations import GenerationInfo
    from noesium_stream.client.run import Run
    from noesium_stream.client.schedules import ScheduleClient, ScheduleInfo
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
        AgentMemoryError,
        ApprovalClosedError,
        ApprovalError,
        ApprovalExpiredError,
        BrokerError,
        BudgetExceededError,
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
        ErasureError,
        EventError,
        EventHeldError,
        EventStoreError,
        EventValidationError,
        FencedError,
        GoalError,
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
        MemoryScopeError,
        MigrationError,
        ModelAccessError,
        ModelAnswerError,
        ModelContextError,
        ModelError,
        ModelOutageError,
        ModelRateLimitError,
        ModelRefusalError,
        ModelTimeoutError,
        ModelTooDearError,
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
        SandboxError,
        ScheduleError,
        ScriptEndedError,
        SequenceGapError,
        SignatureError,
        SkillNotFoundError,
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
        SubjectKeyError,
        ToolError,
        ToolExecutionError,
        ToolInputError,
        ToolNotFoundError,
        ToolPermissionError,
        ToolServerError,
        ToolTimeoutError,
        TopicConfigError,
        TopicNotFoundError,
        UnknownSchemaError,
    )
    from noesium_stream.event.domain_event import DomainEvent
    from noesium_stream.event.envelope import AgentRef, EventEnvelope
    from noesium_stream.event.rules.goal_tree import Goal, GoalTree
    from noesium_stream.event.rules.stream_pieces import Piece
    from noesium_stream.event.rules.stream_progress import ToolProgress
    from noesium_stream.event.standard.capability import (
        Capability,
        CapabilityType,
        DeterminismClass,
        LatencyClass,
        SideEffectClass,
    )
    from noesium_stream.event.trust.budget import Budget
    from noesium_stream.goals.goals import Goals
    from noesium_stream.goals.projection import GoalProjection
    from noesium_stream.kernel.checkpointer.log_checkpointer import LogCheckpointer
    from noesium_stream.kernel.decorators import kernel_compensation, kernel_node
    from noesium_stream.kernel.migration.migration import Migration
    from noesium_stream.kernel.modes import ModelParameters
    from noesium_stream.kernel.retry import Retries
    from noesium_stream.kernel.run_context import Durability
    from noesium_stream.kernel.state.typed_json import kernel_type
    from noesium_stream.kernel.step.answer import Answer
    from noesium_stream.kernel.step.step import Step, current_step
    from noesium_stream.llm.answer import AskedTool, ModelAnswer
    from noesium_stream.llm.base import BaseLLMClient, ChatClient
    from noesium_stream.llm.chat_model import journaled_model
    from noesium_stream.llm.journaled import JournaledLLM
    from noesium_stream.llm.langchain import LangChainLLM
    from noesium_stream.llm.litellm import LiteLLM
    from noesium_stream.llm.llamacpp import LlamaCppLLM
    from noesium_stream.llm.load import load_model
    from noesium_stream.llm.ollama import OllamaLLM
    from noesium_stream.llm.openai import OpenAILLM
    from noesium_stream.llm.openrouter import OpenRouterLLM
    from noesium_stream.llm.routing import ModelRouter, Route
    from noesium_stream.llm.tracking import NodeLoggingCallback, TokenUsageCallback, TokenUsageTracker
    from noesium_stream.llm.usage import Usage
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
    from noesium_stream.tool.mcp import Bearer, ClientCredentials, McpToolkit, ServerSandbox, mcp
    from noesium_stream.worker.worker import Worker

__all__ = [
    "AccountClient",
    "AccountInfo",
    "AgentConfig",
    "AgentContext",
    "AgentError",
    "AgentLoadError",
    "AgentMemoryError",
    "AgentRef",
    "AgentRequest",
    "Answer",
    "Approval",
    "ApprovalClosedError",
    "ApprovalError",
    "ApprovalExpiredError",
    "AskedTool",
    "AttachedProjection",
    "BaseAgent",
    "BaseGraphicAgent",
    "BaseHandler",
    "BaseHitlAgent",
    "BaseLLMClient",
    "BaseProjection",
    "BaseResearcher",
    "BaseWatchdog",
    "Bearer",
    "BrokerError",
    "Budget",
    "BudgetExceededError",
    "CallLimitError",
    "Capability",
    "CapabilityError",
    "CapabilityInputError",
    "CapabilityNotFoundError",
    "CapabilityOutputError",
    "CapabilityRegistry",
    "CapabilitySet",
    "CapabilityType",
    "ChatClient",
    "CheckpointError",
    "CheckpointManager",
    "Client",
    "ClientCredentials",
    "CognitiveProjection",
    "CommitUnknownError",
    "ConfigError",
    "Conversation",
    "ConversationTurn",
    "CorruptRecordError",
    "DeadLetterError",
    "DeadlineExceededError",
    "DeterminismClass",
    "DeterministicResolver",
    "Dialogue",
    "DiscoveryService",
    "DomainEvent",
    "Durability",
    "EffectDecisionError",
    "EffectFailedError",
    "ErasureError",
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
    "Goal",
    "GoalError",
    "GoalProjection",
    "GoalTree",
    "Goals",
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
    "LiteLLM",
    "LlamaCppLLM",
    "LogCheckpointer",
    "LogClosedError",
    "LogCorruptError",
    "LogForbiddenError",
    "LogFullError",
    "LogTruncatedError",
    "LogUnavailableError",
    "LogUnsupportedError",
    "LogUrlError",
    "McpToolkit",
    "MemoryScopeError",
    "Migration",
    "MigrationError",
    "ModelAccessError",
    "ModelAnswer",
    "ModelAnswerError",
    "ModelContextError",
    "ModelError",
    "ModelOutageError",
    "ModelParameters",
    "ModelRateLimitError",
    "ModelRefusalError",
    "ModelRouter",
    "ModelTimeoutError",
    "ModelTooDearError",
    "NodeExecutionError",
    "NodeLoggingCallback",
    "NoesiumConfig",
    "NoesiumError",
    "NondeterminismError",
    "OllamaLLM",
    "OpenAILLM",
    "OpenRouterLLM",
    "OutcomeUnknownError",
    "Overdue",
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
    "Reply",
    "Resolution",
    "Retries",
    "Route",
    "Run",
    "RunCancelledError",
    "RunEndedError",
    "RunError",
    "RunFailedError",
    "RunInfo",
    "RunNotFoundError",
    "RunStrandedError",
    "RunTimeoutError",
    "SandboxError",
    "ScheduleClient",
    "ScheduleError",
    "ScheduleInfo",
    "ScriptEndedError",
    "SemanticIndex",
    "SequenceGapError",
    "ServerSandbox",
    "SideEffectClass",
    "SignatureError",
    "SkillNotFoundError",
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
    "SubjectKeyError",
    "SyncClient",
    "SyncRun",
    "TextLines",
    "TokenUsageCallback",
    "TokenUsageTracker",
    "ToolError",
    "ToolExecutionError",
    "ToolInputError",
    "ToolNotFoundError",
    "ToolPermissionError",
    "ToolProgress",
    "ToolServerError",
    "ToolTimeoutError",
    "TopicConfigError",
    "TopicNotFoundError",
    "TreeEnd",
    "TreeRun",
    "UnknownSchemaError",
    "UnresolvedEffect",
    "Unstopped",
    "Usage",
    "UserMessage",
    "Wait",
    "WordLlamaEmbedder",
    "Worker",
    "agent_from_graph",
    "agent_from_skill",
    "agent_from_tools",
    "capability",
    "cli_subagent",
    "compose",
    "current_step",
    "fold_to_end",
    "journaled_model",
    "kernel_compensation",
    "kernel_node",
    "kernel_type",
    "load_config",
    "load_model",
    "mcp",
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
    "agent.conversation": ("BaseHitlAgent",),
    "agent.dialogue": ("Dialogue", "Reply", "UserMessage"),
    "agent.from_graph": ("agent_from_graph",),
    "agent.from_skill": ("agent_from_skill",),
    "agent.from_tools": ("agent_from_tools",),
    "agent.handler": ("BaseHandler",),
    "agent.request": ("AgentRequest",),
    "agent.watchdog": ("BaseWatchdog", "Overdue"),
    "capabilities.capability_set": ("CapabilitySet",),
    "capabilities.discovery": ("DiscoveryService",),
    "capabilities.registry": ("CapabilityRegistry",),
    "capabilities.resolution": ("DeterministicResolver", "Resolution"),
    "capabilities.tools": ("tool_capability",),
    "client.checkpoint_manager": ("CheckpointManager",),
    "client.client": ("Client",),
    "client.conversation": ("Conversation", "ConversationTurn"),
    "client.executor": ("KernelExecutor",),
    "client.generations": ("GenerationInfo",),
    "client.run": ("Run",),
    "client.accounts": ("AccountClient", "AccountInfo"),
    "client.schedules": ("ScheduleClient", "ScheduleInfo"),
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
    "event.rules.goal_tree": ("Goal", "GoalTree"),
    "event.rules.stream_pieces": ("Piece",),
    "event.rules.stream_progress": ("ToolProgress",),
    "event.standard.capability": (
        "Capability",
        "CapabilityType",
        "DeterminismClass",
        "LatencyClass",
        "SideEffectClass",
    ),
    "event.trust.budget": ("Budget",),
    "goals.goals": ("Goals",),
    "goals.projection": ("GoalProjection",),
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
    "llm.answer": ("AskedTool", "ModelAnswer"),
    "llm.base": ("BaseLLMClient", "ChatClient"),
    "llm.chat_model": ("journaled_model",),
    "llm.journaled": ("JournaledLLM",),
    "llm.langchain": ("LangChainLLM",),
    "llm.litellm": ("LiteLLM",),
    "llm.llamacpp": ("LlamaCppLLM",),
    "llm.load": ("load_model",),
    "llm.ollama": ("OllamaLLM",),
    "llm.openai": ("OpenAILLM",),
    "llm.openrouter": ("OpenRouterLLM",),
    "llm.routing": ("ModelRouter", "Route"),
    "llm.tracking": ("NodeLoggingCallback", "TokenUsageCallback", "TokenUsageTracker"),
    "llm.usage": ("Usage",),
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
    "tool.mcp": ("Bearer", "ClientCredentials", "McpToolkit", "ServerSandbox", "mcp"),
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
