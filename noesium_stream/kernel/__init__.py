"""The deterministic kernel: steps of LangGraph graphs on a run's journal (RFC-0003)."""

from noesium_stream.kernel.checkpointer import LogCheckpointer
from noesium_stream.kernel.decorators import NodeMeta, kernel_node
from noesium_stream.kernel.executor import KernelExecutor, graph_ref
from noesium_stream.kernel.history import TERMINAL, RunHistory
from noesium_stream.kernel.journal import Destination, Provider, RunIdentity, RunJournal
from noesium_stream.kernel.step import Step, current_step

__all__ = [
    "TERMINAL",
    "Destination",
    "KernelExecutor",
    "LogCheckpointer",
    "NodeMeta",
    "Provider",
    "RunHistory",
    "RunIdentity",
    "RunJournal",
    "Step",
    "current_step",
    "graph_ref",
    "kernel_node",
]
