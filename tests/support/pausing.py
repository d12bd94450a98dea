"""A worker, as a process of its own, that stops itself (SIGSTOP) at a named instant.

    python -m tests.support.pausing URL FOLDER NAME never|acquire|intent|result [SESSION_S]

Its agent pays, and says so in FOLDER/ledger as `NAME KEY`. It stops when a partition is assigned to it and
it has not opened the writer (`acquire`), when the intent is on the log and nothing is paid (`intent`), or
when it is paid and nothing of that is on the log (`result`). Sessions and leases are short, so that others
take over soon, or as long as it is told.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.kernel import current_step
from noesium_stream.kernel.step.effect import Effect
from noesium_stream.log import open_log
from noesium_stream.log.kafka.group import member_config
from noesium_stream.log.port import Tenure
from noesium_stream.log.sqlite import group as sqlite_group
from noesium_stream.worker import Worker
from noesium_stream.worker.commit import partition_writer as writing
from noesium_stream.worker.ownership.assignment import Assignment
from noesium_stream.worker.ownership.owner import PartitionOwner

SESSION_S = 2.0


def change_sessions(session_s: float) -> None:
    """For this process."""
    vars(writing).update(PROOF_S=SESSION_S / 4)
    vars(member_config).update(SESSION_MS=round(session_s * 1000), HEARTBEAT_MS=300)
    vars(sqlite_group).update(LEASE_S=session_s)
    sqlite_group.SqliteCoordinator.beat_s = 0.3


def stop(when: str) -> None:
    """Stand still until somebody sends SIGCONT."""
    print(f"stopped: {when}", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)


def tell_of_it(when: str) -> None:
    """Stop where it was asked for, once; and say when a partition was let go."""
    intend, end, tenure = Effect._intend, PartitionOwner._end, Assignment.tenure
    stopped = False

    async def assigned(self: Assignment) -> Tenure:
        nonlocal stopped
        found = await tenure(self)
        if when == "acquire" and not stopped:
            stopped = True
            stop(when)
        return found

    async def intended(self: Effect, effect_id: str) -> None:
        await intend(self, effect_id)
        if when == "intent":
            stop(when)

    async def gone(self: PartitionOwner[Any], *, orderly: bool) -> None:
        await end(self, orderly=orderly)
        print("let go", flush=True)

    setattr(Assignment, "tenure", assigned)  # noqa: B010
    setattr(Effect, "_intend", intended)  # noqa: B010 - mypy knows that they are methods
    setattr(PartitionOwner, "_end", gone)  # noqa: B010


async def main(url: str, folder: Path, name: str, when: str, session_s: float = SESSION_S) -> None:
    """Work until the process is killed."""
    change_sessions(session_s)
    tell_of_it(when)

    async def pay(*, idempotency_key: str) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{name} {idempotency_key}\n")
        if when == "result":
            stop(when)
        return name

    async def body(state: dict[str, Any]) -> dict[str, Any]:
        return {"paid_by": await current_step().effect("pay", pay)}

    graph = StateGraph(dict)
    graph.add_node("pay", body)
    graph.add_edge(START, "pay")
    log = await open_log(url)
    home = folder / name
    async with Worker(log, [agent_from_graph(graph, "payer")], home=home) as worker:
        print("ready", flush=True)
        await worker.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], *map(float, sys.argv[5:])))
