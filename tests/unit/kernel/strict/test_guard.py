"""A guarded node may compute, and nothing else: what it reads is refused with the line that reads it."""

from __future__ import annotations

import asyncio
import cProfile
import functools
import gc
import inspect
import logging
import operator
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextvars import copy_context
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, TypedDict
from zoneinfo import ZoneInfo

import pytest
import uuid_utils
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph

from noesium_stream.clock import SystemClock, derived_id
from noesium_stream.errors import NondeterminismError, RunFailedError
from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import RunCompleted
from noesium_stream.kernel import current_step
from noesium_stream.kernel.strict.guard import exempt, guard_bound, guarded
from tests.support import guard_helper
from tests.support.graphs import running

READS: dict[str, Callable[[], Any]] = {
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.monotonic": lambda: time.monotonic(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.clock_gettime": lambda: time.clock_gettime(0),
    "time.gmtime": lambda: time.gmtime(),
    "time.strftime": lambda: time.strftime("%Y"),
    "datetime.now": lambda: datetime.now(UTC),
    "datetime.utcnow": lambda: datetime.utcnow(),  # noqa: DTZ003
    "datetime.today": lambda: datetime.today(),  # noqa: DTZ002
    "date.today": lambda: date.today(),  # noqa: DTZ011
    "random.random": lambda: random.random(),
    "random.getrandbits": lambda: random.choice([1, 2, 3]),
    "random.seed": lambda: random.seed(5),
    "random.Random() without a seed": lambda: random.Random(),
    "os.urandom": lambda: os.urandom(4),
    "uuid.generate_time_safe": lambda: uuid.uuid1(),
    "uuid_utils.uuid7": lambda: uuid_utils.uuid7(),
    "socket.connect(('127.0.0.1', 9))": lambda: socket.socket().connect(("127.0.0.1", 9)),
    "socket.bind(('127.0.0.1', 0))": lambda: socket.socket().bind(("127.0.0.1", 0)),
    "socket.getaddrinfo('localhost')": lambda: socket.getaddrinfo("localhost", 9),
    "open('nowhere')": lambda: open("nowhere"),  # noqa: SIM115
    "os.stat": lambda: Path("nowhere").exists(),
    "os.listdir('.')": lambda: os.listdir("."),
    "os.mkdir": lambda: Path("nowhere/at/all").mkdir(),
    "sqlite3.connect('nowhere.db')": lambda: sqlite3.connect("nowhere.db"),
    "subprocess.Popen('true')": lambda: subprocess.run(["true"], check=True),
    "os.system": lambda: os.system("true"),
}


def line_of(function: Callable[..., Any], below: int = 0) -> str:
    return f"tests/unit/kernel/strict/test_guard.py:{function.__code__.co_firstlineno + below}"


def refused(function: Callable[[], Any]) -> NondeterminismError:
    with pytest.raises(NondeterminismError) as caught:
        guarded(function, "weigh")()
    return caught.value


async def refused_async(function: Callable[[], Any]) -> NondeterminismError:
    with pytest.raises(NondeterminismError) as caught:
        await guarded(function, "weigh")()
    return caught.value


@pytest.mark.parametrize("what", READS)
def test_what_is_not_the_same_twice_is_refused_with_its_line(what: str) -> None:
    error = refused(READS[what])
    assert error.what == what
    assert error.where == line_of(READS[what])
    assert error.node == "weigh"
    assert error.where in error.message
    assert "current_step()" in str(error.hint)


def test_an_open_file_and_an_open_descriptor_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    assert "open(" in refused(lambda: (tmp_path / "a").read_text()).what
    assert "open(" in refused(lambda: os.open(tmp_path / "a", os.O_RDONLY)).what


def test_a_connection_that_was_opened_before_is_refused() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert refused(lambda: left.send(b"x")).what == "socket.send"


@pytest.mark.parametrize(
    "read", [lambda: secrets.token_hex(4), lambda: uuid.uuid4(), lambda: random.SystemRandom().random()]
)
def test_all_ways_to_the_systems_randomness_are_refused(read: Callable[[], Any]) -> None:
    assert refused(read).what == "os.urandom"


@pytest.mark.parametrize(
    "compute",
    [
        lambda: random.Random(5).random(),
        lambda: time.gmtime(5),
        lambda: time.strftime("%Y", time.gmtime(5)),
        lambda: datetime.fromtimestamp(5, UTC).astimezone(ZoneInfo("Pacific/Chatham")),
        lambda: sqlite3.connect(":memory:").execute("select 1").fetchall(),
        lambda: uuid.uuid5(uuid.NAMESPACE_DNS, "x"),
        lambda: datetime(2026, 1, 1, 5, tzinfo=UTC).time(),
        lambda: derived_id("x"),
        lambda: RunCompleted(run_id="x", duration_ms=1).model_dump_json(),
        lambda: logging.getLogger("test").warning("seen"),
        lambda: inspect.getsource(refused),
    ],
)
def test_what_is_the_same_every_time_and_logging_are_allowed(compute: Callable[[], Any]) -> None:
    guarded(compute, "weigh")()


def test_a_module_that_a_node_imports_first_may_read_what_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_late.py").write_text("import time\nNOW = time.time()\n")
    monkeypatch.syspath_prepend(tmp_path)

    def node() -> float:
        import imported_late  # type: ignore[import-not-found]  # noqa: PLC0415

        return float(imported_late.NOW)

    assert guarded(node, "weigh")() > 0


def test_a_call_deep_in_a_helper_names_the_nodes_own_line_and_the_helpers() -> None:
    def node() -> float:
        n = 1
        return n + guard_helper.deep(3)

    error = refused(node)
    assert error.where == line_of(node, 2)
    assert "called in tests/support/guard_helper.py:" in error.message


def test_the_clock_of_this_package_is_for_the_kernel_and_not_for_nodes() -> None:
    assert refused(lambda: SystemClock().now_ms()).what == "time.time_ns"


def test_partials_methods_callable_objects_and_decorated_functions_name_their_line() -> None:
    class Node:
        def __call__(self) -> float:
            return time.time()

        def method(self) -> float:
            return time.time()

    def plain(_: int) -> float:
        return time.time()

    @functools.wraps(plain)
    def decorated() -> float:
        return plain(1)

    assert refused(Node()).where == line_of(Node.__call__, 1)
    assert refused(Node().method).where == line_of(Node.method, 1)
    assert refused(functools.partial(plain, 1)).where == line_of(plain, 1)
    assert refused(decorated).where == line_of(plain, 1)


def test_a_violation_that_the_node_swallows_is_raised_all_the_same() -> None:
    def node() -> float:
        try:
            return time.time()
        except Exception:
            return 0.0

    assert refused(node).what == "time.time"


def test_a_violation_behind_an_error_of_the_node_is_raised_in_its_stead() -> None:
    def node() -> float:
        try:
            return time.time()
        except Exception as error:
            raise ValueError("no time") from error

    assert refused(node).what == "time.time"


def test_an_error_of_the_node_itself_stays_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 // 0, "weigh")()


async def test_a_guarded_task_does_not_disturb_those_beside_it() -> None:
    """Interleaved at every await: unguarded tasks read the clock, guarded ones are caught, each by itself."""
    read: list[float] = []

    async def free() -> None:
        for _ in range(20):
            read.append(time.time())
            await asyncio.sleep(0)

    async def good(n: int) -> int:
        for _ in range(20):
            n = await asyncio.sleep(0, n + 1)
        return n

    async def late(n: int) -> int:
        for _ in range(n):
            await asyncio.sleep(0)
        return int(time.time())

    tasks = [free(), *(guarded(good, f"good{n}")(n) for n in range(10)), free()]
    tasks += [guarded(late, f"late{n}")(n) for n in range(10)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[1:11] == [n + 20 for n in range(10)]
    assert len(read) == 40
    assert [getattr(error, "node", error) for error in results[12:]] == [f"late{n}" for n in range(10)]
    assert {getattr(error, "where", None) for error in results[12:]} == {line_of(late, 3)}
    assert sys.getprofile() is None
    assert asyncio.get_running_loop().get_task_factory() is None


async def test_tasks_that_a_node_starts_are_watched_and_name_its_line() -> None:
    async def node() -> list[Any]:
        return await asyncio.gather(asyncio.sleep(0), guard_helper.later())

    error = await refused_async(node)
    assert error.what == "time.time"
    assert error.where == line_of(node, 1)


async def test_a_task_that_outlives_its_node_is_no_longer_watched() -> None:
    async def node() -> asyncio.Task[float]:
        return asyncio.create_task(guard_helper.later())

    task = await guarded(node, "weigh")()
    assert await task > 0


async def test_a_node_that_waits_keeps_nobody_from_reading() -> None:
    gate = asyncio.Event()

    async def node() -> str:
        await gate.wait()
        return "done"

    waiting = asyncio.create_task(guarded(node, "weigh")())
    await asyncio.sleep(0)
    assert time.time() > 0
    assert Path(__file__).read_text()
    assert await asyncio.to_thread(time.time) > 0
    gate.set()
    assert await waiting == "done"


async def test_timers_and_timeouts_of_asyncio_work_in_a_node() -> None:
    async def node() -> str:
        async with asyncio.timeout(60):
            await asyncio.sleep(0.001)
        return await asyncio.wait_for(asyncio.sleep(0.001, "done"), 60)

    assert await guarded(node, "weigh")() == "done"


async def test_a_cancelled_node_ends_as_cancelled_and_leaves_nothing_behind() -> None:
    async def node() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(guarded(node, "weigh")())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().get_task_factory() is None
    assert time.time() > 0


async def test_a_task_factory_that_was_there_before_goes_on_and_is_put_back() -> None:
    made: list[Any] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **kwargs)

    async def node() -> None:
        await asyncio.create_task(asyncio.sleep(0))

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        await guarded(node, "weigh")()
        assert loop.get_task_factory() is factory
    finally:
        loop.set_task_factory(None)
    assert len(made) == 1


async def test_a_thread_that_a_node_starts_is_refused() -> None:
    async def node() -> Any:
        return await asyncio.to_thread(sum, [1, 2])

    async def other() -> None:
        threading.Thread(target=print).start()

    assert (await refused_async(node)).what == "ThreadPoolExecutor.submit"
    assert (await refused_async(other)).what == "threading.start_new_thread"


async def test_a_thread_that_carries_the_context_cannot_open_files_for_the_node() -> None:
    pool = guard_helper.Pool()

    async def node() -> Any:
        return await pool.run(copy_context(), open, "nowhere")

    error = await refused_async(node)
    pool.close()
    assert error.what == "open('nowhere')"
    assert error.where == line_of(node, 1)


async def test_the_kernel_exempts_what_it_journals_also_in_tasks_and_threads() -> None:
    async def node() -> int:
        with exempt():
            first = time.time()
            await asyncio.sleep(0)
            second = await asyncio.create_task(guard_helper.later())
            third = await asyncio.to_thread(time.time)
        return sum(n > 0 for n in (first, second, third))

    assert await guarded(node, "weigh")() == 3


async def test_a_task_that_the_kernel_starts_for_a_node_is_not_watched() -> None:
    """As a lazily started worker of a log: the kernel's line starts it, its own code is a library's."""
    kernel: dict[str, Any] = {"asyncio": asyncio}
    file = Path(inspect.getfile(guarded)).with_name("made_up.py")
    exec(compile("def start(work): return asyncio.create_task(work)", str(file), "exec"), kernel)

    async def node() -> float:
        return float(await kernel["start"](guard_helper.later()))

    assert await guarded(node, "weigh")() > 0


async def test_after_an_exemption_the_node_is_watched_again() -> None:
    async def node() -> float:
        with exempt():
            await asyncio.sleep(0)
        return time.time()

    assert (await refused_async(node)).where == line_of(node, 3)


def test_a_profiler_that_is_set_already_is_put_back() -> None:
    seen: list[str] = []

    def profile(frame: Any, event: str, function: Any) -> None:
        seen.append(event)

    sys.setprofile(profile)
    try:
        guarded(lambda: 1, "weigh")()
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        guarded(lambda: 1, "weigh")()
        guard_helper.deep(0)
    finally:
        profiler.disable()
    names = [getattr(entry.code, "co_name", "") for entry in profiler.getstats()]  # type: ignore[attr-defined]
    assert "deep" in names


class State(TypedDict, total=False):
    value: Any
    items: Annotated[list[Any], operator.add]


class RunSeen(DomainEvent, event_type="test.seen.under.guard"):
    n: int


def chain(node: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    graph.add_node("a", node)
    graph.add_edge(START, "a")
    return graph


def bounds(node: Any) -> Any:
    """A graph of one node whose bound is guarded, as the kernel does it."""
    graph = StateGraph(State)
    graph.add_node("a", node)
    graph.add_edge(START, "a")
    compiled = graph.compile()
    nodes = {
        name: spec if name == "__start__" else spec.copy({"bound": guard_bound(spec.bound, name)})
        for name, spec in compiled.nodes.items()
    }
    return compiled.copy({"nodes": nodes})


def sync_node(state: State) -> State:
    return {"value": time.time()}


async def async_node(state: State) -> State:
    return {"value": time.time()}


@pytest.mark.parametrize(
    "node", [sync_node, async_node, RunnableLambda(sync_node), RunnableLambda(async_node)]
)
async def test_sync_and_async_nodes_and_runnables_of_a_graph_are_guarded(node: Any) -> None:
    function = getattr(node, "afunc", None) or getattr(node, "func", node)
    with pytest.raises(NondeterminismError) as caught:
        await bounds(node).ainvoke({})
    assert caught.value.where == line_of(function, 1)


async def test_a_guarded_graph_computes_what_it_did_before() -> None:
    async def node(state: State) -> State:
        return {"value": sorted(state["items"])}

    assert (await bounds(node).ainvoke({"items": [2, 1]}))["value"] == [1, 2]
    assert (await bounds(lambda state: {"value": len(state["items"])}).ainvoke({"items": [2]}))["value"] == 1


async def test_what_the_garbage_collector_runs_is_not_the_nodes_doing() -> None:
    read: list[float] = []

    class Cyclic:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            read.append(time.time())

    def collected(phase: str, info: dict[str, int]) -> None:
        read.append(time.perf_counter())

    async def node(state: State) -> State:
        Cyclic()
        gc.collect()
        return {"value": 1}

    gc.callbacks.append(collected)
    try:
        assert (await bounds(node).ainvoke({}))["value"] == 1
    finally:
        gc.callbacks.remove(collected)
    assert len(read) >= 3


async def test_a_graph_that_a_node_calls_may_keep_its_own_books() -> None:
    inner = StateGraph(State)
    inner.add_node("sync", lambda state: {"items": [1]})
    inner.add_edge(START, "sync")
    compiled = inner.compile()

    async def node(state: State) -> State:
        return {"items": (await compiled.ainvoke({"items": []}))["items"]}

    assert (await bounds(node).ainvoke({"items": []}))["items"] == [1]


async def test_what_the_nodes_of_a_called_graph_read_is_refused_as_well() -> None:
    inner = StateGraph(State)
    inner.add_node("async", async_node)
    inner.add_edge(START, "async")
    compiled = inner.compile()

    async def node(state: State) -> State:
        return {"value": (await compiled.ainvoke({"items": []}))["value"]}

    with pytest.raises(NondeterminismError):
        await bounds(node).ainvoke({})


async def test_a_thousand_guarded_nodes_at_once_leave_nothing_behind() -> None:
    async def node(n: int) -> int:
        await asyncio.sleep(0)
        return await asyncio.create_task(asyncio.sleep(0, n))

    watched = guarded(node, "weigh")
    assert sum(await asyncio.gather(*(watched(n) for n in range(1000)))) == 499_500
    assert asyncio.get_running_loop().get_task_factory() is None
    assert sys.getprofile() is None
    assert time.time() > 0


async def test_everything_that_a_step_offers_is_allowed_under_guard(tmp_path: Path) -> None:
    """The step's own calls on the journal, over a log with files, beside an effect that reads the clock."""

    async def outside(n: int) -> float:
        await asyncio.sleep(0)
        return n + min(time.time(), 1.0)

    def outside_in_a_thread(n: int) -> int:
        return n + len(Path(__file__).read_text()[:4])

    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        values = [step.uuid(), step.random(), step.now().isoformat()]
        step.emit(RunSeen(n=1))
        with exempt():
            done = [await step.effect("thread", outside_in_a_thread, 1)]
        done += await asyncio.gather(*(step.effect("outside", outside, n) for n in range(3)))
        return {"items": [*values, *done]}

    async with running(chain(guarded(node, "a")), tmp_path) as client:
        client.log.catalogue.register(RunSeen)
        run = await client.start("sample", {"items": []})
        items = (await run.result(timeout=120))["items"]
    assert len(items) == 7
    assert items[3:] == [5, 1.0, 2.0, 3.0]


async def test_a_violation_fails_the_run_with_the_line(tmp_path: Path) -> None:
    async with running(chain(guarded(async_node, "a")), tmp_path) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match=f"The node a reads the clock at {line_of(async_node, 1)}"):
            await run.result(timeout=120)


@pytest.mark.parametrize(
    ("host", "what"), [("localhost", "socket.getaddrinfo"), ("127.0.0.1", "socket.connect(('127.0.0.1', 9))")]
)
async def test_connections_of_asyncio_are_refused_as_network(host: str, what: str) -> None:
    async def node() -> None:
        await asyncio.open_connection(host, 9)

    error = await refused_async(node)
    assert error.what == what
    assert error.where == line_of(node, 1)
    assert "uses the network" in error.message


def test_threads_watch_each_their_own_node() -> None:
    """Sync nodes in many threads at once, guarded and not, beside one that is caught."""
    barrier = threading.Barrier(6)
    caught: list[str] = []

    def work(n: int) -> float:
        barrier.wait()
        return sum(range(2_000)) if n % 3 else time.time()

    def run(n: int) -> None:
        try:
            (guarded(work, f"n{n}") if n < 4 else work)(n)
        except NondeterminismError as error:
            caught.append(error.node)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(caught) == ["n0", "n3"]
