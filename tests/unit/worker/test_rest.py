"""A run is parked only where nothing but its waits is under way; what a body does beside them goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph._internal._future import chain_future
from langgraph.graph import START, StateGraph

from noesium_stream.client import Client, Run
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import agent_of
from noesium_stream.worker import Worker, parking, rest
from noesium_stream.worker.rest import Rest
from noesium_stream.worker.session import RunSession
from tests.support.hand_clock import HandClock
from tests.support.reading import eventually

Node = Callable[..., Any]
SHORT_S = 0.5
NO_RUN = copy_context()


class State(TypedDict, total=False):
    value: Any
    other: Any


class Host:
    """A worker of one agent whose clock is moved by hand; it parks when told to."""

    def __init__(self, log: EventLog, home: Path) -> None:
        self.log, self.home, self.clock = log, home, HandClock()

    def worker(self, *nodes: Any) -> Worker:
        graph = StateGraph(State)
        for number, node in enumerate(nodes):
            graph.add_node(f"node{number}", node)
            graph.add_edge(START, f"node{number}")
        self.current = Worker(self.log, [(agent_of(graph), None)], home=self.home, clock=self.clock)
        return self.current

    @property
    def session(self) -> RunSession:
        [found] = [run for owner in self._owners() for run in owner._runs.values()]
        return found

    @property
    def parked(self) -> int:
        return sum(owner.parked_runs for owner in self._owners())

    def sweep(self) -> None:
        """Look for idle runs, and again when they have been idle for long enough."""
        for _ in range(2):
            for owner in self._owners():
                owner.park_idle()
            self.clock.advance(parking.IDLE_S)

    async def waits(self) -> None:
        """Until the run is seen to wait, and everything has come to rest."""
        await eventually(lambda: self._loaded() and self.session.begun and self.session.only_waits())
        for _ in range(50):
            await asyncio.sleep(0)

    async def parks(self) -> None:
        def swept() -> bool:
            self.sweep()
            return self.parked == 1

        await eventually(swept)

    async def result_while_idle(self, run: Run) -> Any:
        """The run's result, with a sweep that finds it idle at every turn of the event loop."""
        result = asyncio.ensure_future(run.result(timeout=5))
        while not result.done():
            self.sweep()
            await asyncio.sleep(0)
        return (await result)["value"]

    def _loaded(self) -> bool:
        return any(owner._runs for owner in self._owners())

    def _owners(self) -> list[Any]:
        return list(self.current._hosts[0]._owners.values())


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    log = await open_log("memory://?partitions=1")
    yield Host(log, tmp_path)
    await log.close()


async def one() -> int:
    return 1


async def late() -> int:
    """Computes for a while, and has an effect."""
    await asyncio.sleep(SHORT_S)
    return int(await current_step().effect("one", one, effect_class=SideEffectClass.IDEMPOTENT))


async def own_timeout(state: State) -> State:
    try:
        async with asyncio.timeout(SHORT_S):
            return {"value": await current_step().signal("never")}
    except TimeoutError:
        return {"value": 1}


async def own_wait_for(state: State) -> State:
    try:
        return {"value": await asyncio.wait_for(current_step().signal("never"), SHORT_S)}
    except TimeoutError:
        return {"value": 1}


async def waited_with_timeout(state: State) -> State:
    waiting = asyncio.create_task(current_step().signal("never"))
    done, _ = await asyncio.wait([waiting], timeout=SHORT_S)
    waiting.cancel()
    return {"value": 1 - len(done)}


async def first_of_two(state: State) -> State:
    waiting = asyncio.create_task(current_step().signal("never"))
    computing = asyncio.create_task(late())
    await asyncio.wait([waiting, computing], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return {"value": computing.result()}


async def gathered(state: State) -> State:
    ends = asyncio.create_task(current_step().signal("never"))

    async def work() -> int:
        value = await late()
        ends.cancel()
        return value

    return {"value": (await asyncio.gather(ends, work(), return_exceptions=True))[1]}


async def grouped(state: State) -> State:
    async with asyncio.TaskGroup() as group:
        ends = group.create_task(current_step().signal("never"))
        computing = group.create_task(late())
        computing.add_done_callback(lambda _: ends.cancel())
    return {"value": computing.result()}


async def background(state: State) -> State:
    waiting = asyncio.create_task(current_step().signal("never"))
    computing = asyncio.create_task(late())
    computing.add_done_callback(lambda _: waiting.cancel())
    with suppress(asyncio.CancelledError):
        await waiting
    return {"value": computing.result()}


async def called_later(state: State) -> State:
    waiting = asyncio.create_task(current_step().signal("never"))
    asyncio.get_running_loop().call_later(SHORT_S, waiting.cancel)
    try:
        await waiting
    except asyncio.CancelledError:
        return {"value": 1}
    return {}


async def foreign_event(state: State) -> State:
    """What is waited for has nothing of this run: the test's own task ends it."""
    waiting = asyncio.create_task(current_step().signal("never"))
    done = asyncio.get_running_loop().create_future()
    NO_RUN.run(asyncio.get_running_loop().call_later, SHORT_S, done.set_result, 1)
    await asyncio.wait([waiting, done], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return {"value": done.result()}


async def task_of_another_context(state: State) -> State:
    waiting = asyncio.create_task(current_step().signal("never"))
    computing = asyncio.create_task(asyncio.sleep(SHORT_S, 1), context=NO_RUN)
    await asyncio.wait([waiting, computing], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return {"value": computing.result()}


async def thread_beside(state: State) -> State:
    stop = threading.Event()
    asyncio.get_running_loop().call_later(SHORT_S, stop.set)
    waiting = asyncio.create_task(current_step().signal("never"))
    await asyncio.to_thread(stop.wait)
    waiting.cancel()
    return {"value": 1}


BESIDE = [
    own_timeout,
    own_wait_for,
    waited_with_timeout,
    first_of_two,
    gathered,
    grouped,
    background,
    called_later,
    foreign_event,
    task_of_another_context,
    thread_beside,
]


@pytest.mark.parametrize("node", BESIDE)
async def test_what_a_body_does_beside_a_wait_is_done_however_often_idle_runs_are_looked_for(
    host: Host, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "IDLE_S", 0.01)  # a minute at every turn: no commit proves ownership so long
    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await host.waits()
        assert not Rest().proves(host.session)
        assert await host.result_while_idle(run) == 1


@pytest.mark.parametrize("node", BESIDE)
async def test_what_a_body_does_beside_a_wait_is_done_however_many_wait(
    host: Host, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "CROWD", 0)
    monkeypatch.setattr(parking, "SETTLE_S", 0.0)
    monkeypatch.setattr(parking, "_SETTLING_TURNS", 3)
    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        assert (await run.result(timeout=5))["value"] == 1


async def plain(state: State) -> State:
    return {"value": await current_step().signal("go")}


async def both(state: State) -> State:
    step = current_step()
    return {"value": (await asyncio.gather(step.signal("go"), step.signal("other")))[0]}


async def both_in_a_group(state: State) -> State:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(current_step().signal("go"))
        group.create_task(current_step().signal("other"))
    return {"value": first.result()}


async def nested(state: State) -> State:
    async def inner() -> Any:
        step = current_step()
        done, _ = await asyncio.wait(
            [asyncio.create_task(step.signal("go")), asyncio.create_task(step.signal("other"))]
        )
        return min(task.result() for task in done)

    return {"value": (await asyncio.gather(asyncio.create_task(inner()), one()))[0]}


async def timer_before(state: State) -> State:
    async with asyncio.timeout(3_600):
        await asyncio.sleep(0)
    return await plain(state)


def in_a_thread(state: State) -> State:
    step = current_step()
    return {"value": step.wait(step.signal("go"))}


async def from_a_thread(state: State) -> State:
    threaded = asyncio.to_thread(in_a_thread, state)
    return (await asyncio.gather(threaded, current_step().signal("other")))[0]


def as_a_subgraph(node: Node) -> Any:
    inner = StateGraph(State)
    for name in ("one", "two"):
        inner.add_node(name, node if name == "one" else _nothing)
        inner.add_edge(START, name)
    return inner.compile()


async def _nothing(state: State) -> State:
    return {}


async def streaming(state: State) -> State:
    chunks = [chunk async for chunk in as_a_subgraph(plain).astream(state, stream_mode=["custom", "values"])]
    return {"value": chunks[-1][1]["value"]}


ONLY_WAITS = [
    plain,
    both,
    both_in_a_group,
    nested,
    timer_before,
    in_a_thread,
    from_a_thread,
    as_a_subgraph(plain),
    as_a_subgraph(in_a_thread),
    streaming,
]


@pytest.mark.parametrize("node", ONLY_WAITS, ids=lambda node: getattr(node, "__name__", "subgraph"))
@pytest.mark.parametrize("siblings", [0, 1])
async def test_a_run_that_only_waits_is_parked_and_goes_on(host: Host, node: Node, siblings: int) -> None:
    async def sibling(state: State) -> State:
        return {"other": await current_step().signal("go")}

    async with host.worker(node, *[sibling] * siblings), Client(host.log) as client:
        run = await client.start("sample", {})
        await host.waits()
        await host.parks()
        await run.signal("go", 1)
        await run.signal("other", 2)
        assert (await run.result(timeout=5))["value"] in (1, None)


async def test_a_thread_that_waits_beside_threads_of_its_own_keeps_the_run_loaded(host: Host) -> None:
    stop = threading.Event()

    def node(state: State) -> State:
        step = current_step()
        with ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(copy_context().run, step.wait, step.signal("go"))
            computing = pool.submit(stop.wait)
            return {"value": [waiting.result(), computing.result()]}

    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await host.waits()
        for _ in range(3):
            host.sweep()
        assert host.parked == 0
        stop.set()
        await run.signal("go", 1)
        assert (await run.result(timeout=5))["value"] == [1, True]


async def test_what_could_not_be_parked_for_work_beside_it_is_parked_when_that_has_ended(host: Host) -> None:
    gate = asyncio.Event()

    async def node(state: State) -> State:
        return {"value": (await asyncio.gather(current_step().signal("go"), gate.wait()))[0]}

    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await host.waits()
        host.sweep()
        assert host.parked == 0
        gate.set()
        await host.parks()
        await run.signal("go", 1)
        assert (await run.result(timeout=5))["value"] == 1


@pytest.mark.parametrize("hidden", ["_scheduled", "_ready"])
async def test_an_event_loop_that_does_not_show_its_timers_proves_nothing(host: Host, hidden: str) -> None:
    loop: Any = asyncio.get_running_loop()
    async with host.worker(plain), Client(host.log) as client:
        await client.start("sample", {})
        await host.waits()
        assert Rest().proves(host.session)
        shown = loop.__dict__.pop(hidden)
        try:
            assert not Rest().proves(host.session)
        finally:
            setattr(loop, hidden, shown)


async def test_a_run_that_does_not_show_its_tasks_is_not_proven_to_wait(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host.worker(plain), Client(host.log) as client:
        await client.start("sample", {})
        await host.waits()
        monkeypatch.setattr(rest, "_context", lambda task: None)
        assert not Rest().proves(host.session)


async def test_a_tasks_context_is_its_own_and_not_that_of_its_callbacks() -> None:
    mark: ContextVar[str] = ContextVar("mark", default="none")

    async def marked() -> None:
        mark.set("own")
        await asyncio.sleep(0)
        await gate.wait()

    gate = asyncio.Event()
    mark.set("callback")
    callers = copy_context()
    found = asyncio.create_task(marked())
    found.add_done_callback(lambda _: None, context=callers)
    await asyncio.sleep(0)
    context = rest._context(found)
    assert context is not None
    assert context[mark] == "own"
    gate.set()
    await found


async def test_runs_of_which_nothing_is_proven_are_none_of_a_crowd(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "CROWD", 1)
    monkeypatch.setattr(parking, "SETTLE_S", 0.0)
    gate, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def node(state: State) -> State:
        begun.release()
        return {"value": (await asyncio.gather(current_step().signal("go"), gate.wait()))[0]}

    async with host.worker(node), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(3)]
        for _ in runs:
            await asyncio.wait_for(begun.acquire(), 10)
        [owner] = host._owners()
        await eventually(lambda: all(session.only_waits() for session in owner._runs.values()))
        await eventually(lambda: len(owner._parking._patient) <= 1)
        assert host.parked == 0
        gate.set()
        await eventually(lambda: all(Rest().proves(session) for session in owner._runs.values()))
        for _ in range(2):
            host.sweep()
        assert host.parked == 3
        for run in runs:
            await run.signal("go", 1)
            assert (await run.result(timeout=5))["value"] == 1


async def test_the_future_that_langgraph_gives_for_a_task_leads_to_the_task() -> None:
    loop = asyncio.get_running_loop()
    source: asyncio.Future[None] = loop.create_future()
    chained = chain_future(source, loop.create_future())
    assert rest._source(chained) is source
    assert rest._source(source) is None
    source.cancel()
