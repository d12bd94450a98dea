"""The worker: handlers beside other stream processing, graphs beside LangGraph alone, and what an owner does.

Every side of a comparison runs in a process of its own, in turn with the others. See the modules of each:
`worker_handler`, `worker_runs`, `worker_client`, `worker_lone`, `worker_profile`, `worker_memory`,
`worker_takeover`, `worker_fairness`, `worker_shared`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.bench.harness import Figure
from tests.bench.worker_client import measure_client
from tests.bench.worker_fairness import measure_fairness
from tests.bench.worker_handler import measure_handler
from tests.bench.worker_lone import measure_lone
from tests.bench.worker_memory import measure_memory
from tests.bench.worker_profile import measure_profile
from tests.bench.worker_runs import measure_graph
from tests.bench.worker_settings import WorkerSettings
from tests.bench.worker_shared import measure_shared
from tests.bench.worker_step import measure_step
from tests.bench.worker_takeover import measure_takeover
from tests.support.kafka import KafkaServer

WorkerGroup = Callable[[WorkerSettings, KafkaServer], Awaitable[list[Figure]]]

OF_WORKER: dict[str, WorkerGroup] = {
    "handler": measure_handler,
    "graph": measure_graph,
    "client": measure_client,
    "shared": measure_shared,
    "step": measure_step,
    "lone": measure_lone,
    "profile": measure_profile,
    "fairness": measure_fairness,
    "takeover": measure_takeover,
    "memory": measure_memory,
}
