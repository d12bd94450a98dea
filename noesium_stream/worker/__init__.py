"""Worker processes: owners of partitions, resumption, the running of agents."""

from noesium_stream.worker.known_runs import Bounds
from noesium_stream.worker.partition import PartitionOwner
from noesium_stream.worker.worker import Worker

__all__ = ["Bounds", "PartitionOwner", "Worker"]
