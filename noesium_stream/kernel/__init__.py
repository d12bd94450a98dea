"""The deterministic kernel: steps of LangGraph graphs on a run's journal (RFC-0003)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.kernel.checkpointer.log_checkpointer import LogCheckpointer
    from noesium_stream.kernel.decorators import NodeMeta, kernel_compensation, kernel_node
    from noesium_stream.kernel.graph.durable_graph import DurableGraph
    from noesium_stream.kernel.graph.durable_node import NO_LONGER_OWNER
    from noesium_stream.kernel.graph_fingerprint import graph_ref
    from noesium_stream.kernel.journal import Destination, Provider, RunIdentity, RunJournal, TaskTopic
    from noesium_stream.kernel.migration.migration import Migration
    from noesium_stream.kernel.retry import Retries
    from noesium_stream.kernel.run_context import Durability
    from noesium_stream.kernel.run_history import RunHistory
    from noesium_stream.kernel.state.node_values import NodeResult
    from noesium_stream.kernel.step.step import Step, current_step

__all__ = [
    "NO_LONGER_OWNER",
    "Destination",
    "Durability",
    "DurableGraph",
    "LogCheckpointer",
    "Migration",
    "NodeMeta",
    "NodeResult",
    "Provider",
    "Retries",
    "RunHistory",
    "RunIdentity",
    "RunJournal",
    "Step",
    "TaskTopic",
    "current_step",
    "graph_ref",
    "kernel_compensation",
    "kernel_node",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Destination": "journal",
            "Durability": "run_context",
            "DurableGraph": "graph.durable_graph",
            "LogCheckpointer": "checkpointer.log_checkpointer",
            "Migration": "migration.migration",
            "NO_LONGER_OWNER": "graph.durable_node",
            "NodeMeta": "decorators",
            "NodeResult": "state.node_values",
            "Provider": "journal",
            "Retries": "retry",
            "RunHistory": "run_history",
            "RunIdentity": "journal",
            "RunJournal": "journal",
            "Step": "step.step",
            "TaskTopic": "journal",
            "current_step": "step.step",
            "graph_ref": "graph_fingerprint",
            "kernel_compensation": "decorators",
            "kernel_node": "decorators",
        },
    )
