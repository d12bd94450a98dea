"""Where the time of a lone run goes: ten steps one after the other, from the call to the answer.

One run at a time, with nothing else on the worker, which is in the client's process. The milliseconds of each
phase are noted by wrapping what does it:

- append: the client's command, until the log has it;
- wake-up: until the owner of the partition begins to commit that it has accepted it;
- commits: all of the run's; of these, on Kafka, `begin`, `produce`, `flush` (the records' way to the broker
  and back) and `end` (EndTxn);
- between: what the kernel, LangGraph and the node's code do between two commits;
- back: from the last commit to the result in the caller's hand.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client
from noesium_stream.kernel import Durability
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.commit.committer import Committer
from noesium_stream.worker.process_settings import tune_process
from tests.bench.harness import Figure, Side, progress
from tests.bench.place import kafka_log
from tests.bench.worker_agents import Count
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

STEPS = 10
_PAUSE_S = 0.02
"""After each run, so that nothing of it is under way when the next one begins."""

_WATCHED: tuple[tuple[type, str, str], ...] = (
    (Committer, "_commit", "commits"),
    (TransactionalProducer, "begin", "begin"),
    (TransactionalProducer, "produce", "produce"),
    (TransactionalProducer, "flush", "flush"),
    (TransactionalProducer, "commit", "end"),
)
Spans = dict[str, list[tuple[float, float]]]
"""Begin and end, in seconds, by phase."""


async def _count(state: Count) -> Count:
    return {"n": state["n"] + 1}


def steps_in_turn(number: int, durability: Durability) -> type[BaseGraphicAgent]:
    """An agent of so many trivial steps."""

    class InTurn(BaseGraphicAgent):
        agent_type = f"steps-{number}-{durability.value}"

        def get_state_class(self) -> type[Any]:
            return Count

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            graph: StateGraph[Any, Any, Any, Any] = StateGraph(Count)
            names = [START, *(f"step{one}" for one in range(number)), END]
            for name in names[1:-1]:
                graph.add_node(name, _count)
            for one, following in itertools.pairwise(names):
                graph.add_edge(one, following)
            return graph

    InTurn.durability = durability
    return InTurn


async def measure_lone(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds of a lone run, p50 of each of some rounds, and its phases."""
    found = []
    for name in ("SQLite", "Kafka"):
        for durability in (Durability.SYNC, Durability.ASYNC):
            async with AsyncExitStack() as stack:
                if name == "Kafka":
                    log = await stack.enter_async_context(kafka_log(kafka, "&partitions=1"))
                else:
                    path = settings.folder / f"lone-{secrets.token_hex(4)}.db"
                    log = await open_log(f"sqlite:///{path}?partitions=1")
                    stack.push_async_callback(log.close)
                found.append(await _measured(settings, log, name, durability))
    return found


async def _measured(settings: WorkerSettings, log: EventLog, name: str, durability: Durability) -> Figure:
    rounds, each = settings.repetitions, max(10, settings.steps // 3)
    progress(f"lone: {rounds} x {each} runs of {STEPS} steps on {name}, {durability.name}")
    agent, home = steps_in_turn(STEPS, durability), settings.folder / f"lone-{secrets.token_hex(4)}"
    phases: list[dict[str, float]] = []
    tune_process()
    with _watched() as spans:
        async with Worker(log, [agent], home=home), Client(log) as client:
            for number in range(each // 2 + rounds * each):
                spans.clear()
                began = time.perf_counter()
                run = await client.start(agent.agent_type, {"n": 0})
                sent = time.perf_counter()
                await run.result()
                ended = time.perf_counter()
                await asyncio.sleep(_PAUSE_S)
                if number >= each // 2:
                    phases.append(_phases(spans, began, sent, ended))
    parts = [phases[number * each : (number + 1) * each] for number in range(rounds)]
    whole = Side("from the call to the result", [median(one["whole"] for one in part) for part in parts])
    commits = Side("its commits", [median(one["commits"] for one in part) for part in parts])
    note = ", ".join(
        f"{phase} {median(one[phase] for one in phases):.2f}" for phase in phases[0] if phase != "whole"
    )
    return Figure("lone", f"{STEPS} steps on {name}, {durability.name}, p50", "ms", whole, commits, note=note)


def _phases(spans: Spans, began: float, sent: float, ended: float) -> dict[str, float]:
    """Milliseconds by phase; `number` is how many commits there were until the result."""
    commits = sorted(span for span in spans["commits"] if span[0] < ended)
    found = {
        "whole": ended - began,
        "append": sent - began,
        "wake-up": commits[0][0] - sent,
        "commits": sum(end - begin for begin, end in commits),
        "between": sum(after[0] - before[1] for before, after in itertools.pairwise(commits)),
        "back": ended - commits[-1][1],
    }
    for _, _, phase in _WATCHED[1:]:
        if phase in spans:
            found[phase] = sum(end - begin for begin, end in spans[phase] if begin < ended)
    if "end" in found:
        found["end"] -= found["flush"]  # it flushes first
    return {**{phase: 1e3 * took for phase, took in found.items()}, "number": len(commits)}


@contextmanager
def _watched() -> Iterator[Spans]:
    spans: Spans = defaultdict(list)
    with ExitStack() as stack:
        for owner, method, phase in _WATCHED:
            timed = _timed(getattr(owner, method), spans, phase)
            stack.enter_context(patch.object(owner, method, timed))
        yield spans


def _timed(function: Callable[..., Any], spans: Spans, phase: str) -> Callable[..., Any]:
    if asyncio.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return await function(*given, **named)
            finally:
                spans[phase].append((began, time.perf_counter()))

        return wait

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            spans[phase].append((began, time.perf_counter()))

    return call
