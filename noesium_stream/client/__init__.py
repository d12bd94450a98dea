"""Start, find, follow, signal and cancel runs from any program."""

from noesium_stream.client.client import Client
from noesium_stream.client.run import Run
from noesium_stream.client.views.approvals import Approval
from noesium_stream.client.views.runs import RunInfo
from noesium_stream.client.views.unresolved_effects import UnresolvedEffect
from noesium_stream.client.views.waits import Wait
from noesium_stream.client.views.workers import OwnedPartition

__all__ = [
    "Approval",
    "Client",
    "OwnedPartition",
    "Run",
    "RunInfo",
    "UnresolvedEffect",
    "Wait",
]
