"""Start, find, follow, signal and cancel runs from any program."""

from noesium_stream.client.approvals import Approval
from noesium_stream.client.client import Client
from noesium_stream.client.effects import OpenEffect
from noesium_stream.client.run import Run
from noesium_stream.client.runs import RunInfo
from noesium_stream.client.sync import SyncClient, SyncRun
from noesium_stream.client.workers import OwnedPartition

__all__ = ["Approval", "Client", "OpenEffect", "OwnedPartition", "Run", "RunInfo", "SyncClient", "SyncRun"]
