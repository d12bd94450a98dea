"""A worker in a process of its own.

    python -m tests.bench.worker_child handler '{"url": …, "name": …, "topic": …, "until": {…}, "home": …}'
    python -m tests.bench.worker_child work    '{"url": …, "agent": …, "home": …, "at_once": …}'
    python -m tests.bench.worker_child bare    '{"runs": …, "at_once": …}'
    python -m tests.bench.worker_child direct  '{"runs": …, "at_once": …}'

`handler`: from joining the group until all of `until` is handled and committed; prints one line of JSON.
`work`: until it is killed or standard input ends; prints a line when it has joined its group and what became
of its partitions (`{"assigned": …}`, `{"owned": …}`, by the machine's monotonic clock in seconds, with how
many records of the journal were read). Each line that it is given says how its runs are to stand, and one is
printed once they do: `{"open": 5, "rests": [3]}`, five are open, and at least three are known to rest
(`_standing`).
`bare`: the graph of two nodes with LangGraph's own saver in memory, so many at once.
`direct`: the same of a graph that calls another one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.worker import Worker, run_host
from noesium_stream.worker.gc_tuning import spare_what_is_loaded
from noesium_stream.worker.handler_host import HandlerHost
from noesium_stream.worker.handlers.tenure import HandlerTenure
from noesium_stream.worker.host import Host
from noesium_stream.worker.process_settings import tune_process
from noesium_stream.worker.state.journal_entry import Entry
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.state_keeper import StateKeeper
from noesium_stream.worker.tenure import RunPartition, RunPartitionOwner, RunTenure
from tests.bench.delegation_agents import CREWS, caller_graph, provider_graph
from tests.bench.events import catalogue
from tests.bench.worker_agents import AGENTS, summing, two_nodes

_CHANGES: tuple[tuple[type, str], ...] = (
    (StateKeeper, "committed"),
    (StateKeeper, "write"),
    (PartitionState, "rests"),
    (PartitionState, "read_to"),
    (RunTenure, "begin"),
)
"""What changes how runs stand."""


async def handle(asked: Mapping[str, Any], log: EventLog) -> dict[str, Any]:
    """Handle all of `until`."""
    first, commits, taken = 0.0, 0, asyncio.Event()
    take, commit, on_log = HandlerHost._handle, HandlerTenure._commit, HandlerTenure._on_log

    async def timed(host: HandlerHost, records: Sequence[Any]) -> None:
        nonlocal first
        first = first or time.perf_counter()
        await take(host, records)

    def landed(tenure: HandlerTenure, *given: Any) -> None:
        on_log(tenure, *given)
        taken.set()

    async def counted(tenure: HandlerTenure, *given: Any) -> None:
        nonlocal commits
        commits += 1
        await commit(tenure, *given)

    HandlerHost._handle = timed  # type: ignore[method-assign]
    HandlerTenure._commit = counted  # type: ignore[method-assign]
    HandlerTenure._on_log = landed  # type: ignore[method-assign]
    until = {TopicPartition(asked["topic"], int(p)): offset for p, offset in asked["until"].items()}
    began = time.perf_counter()
    tune_process(handlers=True)
    async with Worker(log, [summing(asked["name"])], home=Path(asked["home"])) as worker:
        spare_what_is_loaded()  # as `noesium worker` does
        while not _handled(worker.tenures(), until):
            taken.clear()
            await taken.wait()
        done = time.perf_counter()
        total = sum(_total(tenure) for tenure in worker.tenures())
    return {"seconds": done - began, "from_first": done - first, "commits": commits, "total": total}


def _handled(tenures: Sequence[HandlerTenure], until: Mapping[TopicPartition, int]) -> bool:
    """Whether every partition was handled up to its last record."""
    partitions = [tenure.status(None) for tenure in tenures]
    done = {TopicPartition(one.topic, one.partition): one.next_offset for one in partitions}
    return all(done.get(place, 0) > offset for place, offset in until.items())


def _total(tenure: HandlerTenure) -> int:
    fold = tenure._fold
    fold.flush()
    return sum(state for _, state in fold.rows())


async def work(asked: Mapping[str, Any], log: EventLog) -> None:
    """Work until standard input ends; each line of it asks to be told when the runs stand so."""
    assigned, open_tenure, evolve = Host._assigned, run_host.open_tenure, PartitionState.evolve
    folded, changed = 0, asyncio.Event()

    async def told(host: Host, places: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        if places:
            _say({"assigned": len(places), "at_s": time.monotonic()})
        return await assigned(host, places)

    async def owned(partition: RunPartition, owner: RunPartitionOwner) -> RunTenure:
        before = folded
        tenure = await open_tenure(partition, owner)
        number = partition.context.partition
        _say({"owned": number, "at_s": time.monotonic(), "read": folded - before})
        return tenure

    def counted(state: PartitionState, entry: Entry) -> None:
        nonlocal folded
        folded += 1
        evolve(state, entry)

    Host._assigned = told  # type: ignore[method-assign]
    run_host.open_tenure = owned
    PartitionState.evolve = counted  # type: ignore[method-assign]
    for kind, name in _CHANGES:
        _tells(kind, name, changed)
    agents = CREWS.get(asked["agent"]) or [AGENTS[asked["agent"]]]
    home = Path(asked["home"])
    tune_process()
    async with Worker(log, agents, home=home, concurrency=asked["at_once"]) as worker:
        spare_what_is_loaded()  # as `noesium worker` does
        _say({"joined": True})
        while line := await asyncio.to_thread(sys.stdin.readline):
            wanted = json.loads(line)
            while not _is_so(wanted, standing := _standing(worker.tenures())):
                changed.clear()
                await changed.wait()
            _say(standing)


def _tells(kind: type, name: str, changed: asyncio.Event) -> None:
    """Let a method that changes how runs stand say so."""
    change = getattr(kind, name)

    def telling(*given: Any) -> Any:
        changed.set()  # who waits looks once it has given way
        return change(*given)

    setattr(kind, name, telling)


def _standing(tenures: Iterable[RunTenure]) -> dict[str, int]:
    """Of all partitions: how many runs are open, how many of them are not loaded, and of how many it is known
    that they rest; how many records lie in the state that its file does not have, and how many wait in it.
    """
    found = dict.fromkeys(("open", "evicted", "rests", "unwritten", "waiting"), 0)
    for tenure in tenures:
        keeper = tenure.keeper
        found["open"] += tenure.open_runs
        found["evicted"] += tenure.evicted_runs
        found["rests"] += sum(run.rests for run in keeper.state.open.values())
        found["unwritten"] += keeper._unwritten
        found["waiting"] += keeper.state.manifest.counts["waiting"]
    return found


def _is_so(wanted: Mapping[str, Any], standing: Mapping[str, int]) -> bool:
    return all(
        standing[name] >= bound[0] if isinstance(bound, list) else standing[name] == bound
        for name, bound in wanted.items()
    )


async def bare(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of so many runs of the graph of two nodes, so many at once."""
    graph = two_nodes().compile(checkpointer=InMemorySaver())
    return {"seconds": await _direct(graph, asked["runs"], asked["at_once"], adds=2)}


async def direct(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a graph that calls another graph."""
    called = provider_graph().compile(checkpointer=InMemorySaver())
    numbers = itertools.count()

    async def call(n: int) -> int:
        config: Any = {"configurable": {"thread_id": f"called {next(numbers)}"}}
        return int((await called.ainvoke({"n": n}, config))["n"])

    graph = caller_graph(call).compile(checkpointer=InMemorySaver())
    return {"seconds": await _direct(graph, asked["runs"], asked["at_once"], adds=1)}


async def _direct(graph: CompiledStateGraph[Any, Any, Any, Any], runs: int, at_once: int, adds: int) -> float:
    numbers = iter(range(runs))

    async def one_after_the_other() -> None:
        for number in numbers:
            config: Any = {"configurable": {"thread_id": str(number)}}
            state = await graph.ainvoke({"n": number}, config)
            assert state["n"] == number + adds

    await graph.ainvoke({"n": 0}, {"configurable": {"thread_id": "first"}})
    began = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))
    return time.perf_counter() - began


def _say(what: Mapping[str, Any]) -> None:
    print(json.dumps(what), flush=True)


async def main(what: str, asked: Mapping[str, Any]) -> None:
    """Do it; print what was found."""
    if what in ("bare", "direct"):
        return _say(await (bare if what == "bare" else direct)(asked))
    log = await open_log(asked["url"], catalogue=catalogue())
    try:
        if what == "handler":
            _say(await handle(asked, log))
        else:
            await work(asked, log)
    finally:
        await log.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
