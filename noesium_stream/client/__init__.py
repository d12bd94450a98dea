"""Start, find, follow, signal and cancel runs from any program."""

from noesium_stream.client.client import Client
from noesium_stream.client.run import Run
from noesium_stream.client.runs import RunInfo
from noesium_stream.client.sync import SyncClient, SyncRun

__all__ = ["Client", "Run", "RunInfo", "SyncClient", "SyncRun"]
