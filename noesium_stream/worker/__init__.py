"""Worker processes: owners of partitions, the runs in them, and the handlers.

Concepts: the host (one agent's consumer-group member), the owner of a partition and its tenure (from the
fenced writer's first commit to its loss), the admission of inbox records (a pure decider and a loop), open
runs, the group commit, and the partition's state (a fold over its journal).

Open `worker.py` first, then `tenure.py`.
"""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.worker.approval_hook import ApprovalHook
    from noesium_stream.worker.health import HealthServer
    from noesium_stream.worker.host import STOPPING
    from noesium_stream.worker.state.known_runs import Bounds
    from noesium_stream.worker.worker import Worker

__all__ = ["STOPPING", "ApprovalHook", "Bounds", "HealthServer", "Worker"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "STOPPING": "host",
            "ApprovalHook": "approval_hook",
            "Bounds": "state.known_runs",
            "HealthServer": "health",
            "Worker": "worker",
        },
    )
