"""What a run cannot take: one clear error that says what to do, and a log on which the next run goes on."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, Send
from pydantic import BaseModel

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.client.executor import KernelExecutor
from noesium_stream.errors import (
    ApprovalClosedError,
    KernelError,
    NoesiumError,
    RunEndedError,
    RunFailedError,
    StateError,
)
from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import Durability, current_step
from noesium_stream.kernel.state.typed_json import MAX_VALUE_BYTES
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S

PURE = SideEffectClass.PURE
LARGE = 100_000_000
STORE_IT = "Store it elsewhere (a file, an object store) and keep its address and its hash in the state."


class State(TypedDict, total=False):
    what: str
    value: Any
    answer: Any


class Seen(DomainEvent, event_type="test.seen"):
    text: str


class Model(BaseModel):
    inner: Any


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


RETURNS: dict[str, Callable[[], Any]] = {
    "lock": lambda: {"value": {"a": [1, {"b": threading.Lock()}]}},
    "class": lambda: {"value": [type("Local", (), {})()]},
    "itself": lambda: {"value": itself()},
    "nan": lambda: {"value": {"x": [1.0, float("nan")]}},
    "integer": lambda: {"value": 2**60},
    "half a pair": lambda: {"value": {"x": ["ok", "\ud800"]}},
    "half a pair as key": lambda: {"value": {"\ud800": 1}},
    "by Command": lambda: Command(update={"value": {1: threading.Lock()}}),
    "by Send": lambda: Command(goto=Send("b", {"value": threading.Lock()})),
    "in a model": lambda: {"value": Model(inner="\ud800")},
    "number": lambda: 5,
    "text": lambda: "value",
    "list": lambda: [1, 2],
    "mistyped": lambda: {"valeu": 1},
    "unlike any": lambda: {"zzz": 1},
    "large": lambda: {"value": {"documents": ["short", "y" * LARGE]}},
    "large as a whole": lambda: {"value": ["y" * 100_000] * 11},
    "just too large": lambda: {"value": "y" * (MAX_VALUE_BYTES - len('{"value":""}') + 1)},
    "event": lambda: {"_pending_events": [Seen(text="y" * LARGE)]},
    "no event": lambda: {"_pending_events": ["seen"]},
}

TOLD = {
    "lock": ("StateError: The node a: delta.value.a[1].b is of type lock", "keep files, connections"),
    "class": ("StateError: The node a: delta.value[0] is of type Local", "State is recorded as JSON"),
    "itself": ("StateError: The node a: delta.value[0][0]", "Does it hold itself?"),
    "nan": ("StateError: The node a: delta.value.x[1] is nan, which JSON does not have.", None),
    "integer": ("StateError: The node a: delta.value is an integer beyond 2^53-1.", "Keep it as text."),
    "half a pair": ("The node a: delta.value.x[1] holds half a surrogate pair", "os.fsencode"),
    "half a pair as key": ("The node a: delta.value holds half a surrogate pair", "os.fsencode"),
    "by Command": ("StateError: The node a: update.value[1] is of type lock", "State is recorded as JSON"),
    "by Send": ("StateError: The node a: goto.b.value is of type lock", "State is recorded as JSON"),
    "in a model": ("StateError: The node a: delta.value is a Model, which pydantic", "Its fields have to"),
    "number": ("StateError: The node a returned a value of type int", "Return a dict"),
    "text": ("StateError: The node a returned a value of type str", "Return a dict"),
    "list": ("StateError: The node a returned a value of type list", "Return a dict"),
    "mistyped": ("StateError: The node a returned valeu, which the graph's state", "Did you mean value?"),
    "unlike any": ("StateError: The node a returned zzz", "It has answer, value, what."),
    "large": ("The node a: delta.value.documents[1] has 100,000,002 bytes as JSON, and", STORE_IT),
    "large as a whole": ("The node a: delta.value has 1,100,034 bytes as JSON, and", STORE_IT),
    "just too large": (
        "a: delta has 1,000,001 bytes as JSON, and a step records at most 1,000,000.",
        STORE_IT,
    ),
    "event": ("The node a: test.seen.text has 100,000,002 bytes", STORE_IT),
    "no event": ("StateError: The node a: _pending_events holds str", "Derive a class from DomainEvent"),
}


async def act(what: str) -> Any:
    step = current_step()
    if what == "argument":
        return await step.effect("send", len, "y" * LARGE, effect_class=PURE)
    if what == "result":
        return await step.effect("fetch", lambda: "y" * LARGE, effect_class=PURE)
    if what == "no JSON":
        return await step.effect("fetch", lambda: {"of": threading.Lock()}, effect_class=PURE)
    if what == "done, and large":
        return await step.effect("pay", lambda: "y" * LARGE)
    if what == "question":
        return (await step.interrupt({"see": "y" * LARGE})).value
    if what == "question of a lock":
        return (await step.interrupt({"see": threading.Lock()})).value
    if what == "call":
        return await step.invoke("x.y", {"text": "y" * LARGE})
    return (await step.interrupt("Go on?")).value


ACTS = {
    "argument": ("The effect send: arguments.args[0] has 100,000,002 bytes", STORE_IT),
    "result": ("The effect fetch: result has 100,000,002 bytes", STORE_IT),
    "no JSON": ("StateError: The effect fetch: result.of is of type lock", "State is recorded as JSON"),
    "question": ("The node a: question.see has 100,000,002 bytes", STORE_IT),
    "question of a lock": (
        "StateError: The node a: question.see is of type lock",
        "State is recorded as JSON",
    ),
    "call": ("The call of x.y: arguments.text has 100,000,002 bytes", STORE_IT),
}


async def node(state: State) -> Any:
    what = state["what"]
    if what in RETURNS:
        return RETURNS[what]()
    return {} if what == "ok" else {"answer": await act(what)}


def graph(**options: Any) -> StateGraph[Any, Any, Any, Any]:
    built = StateGraph(State)
    built.add_node("a", node, **options)
    built.add_node("b", lambda state: {"value": "b was here"})
    built.add_edge(START, "a")
    built.add_edge("a", "b")
    return built


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    url = (
        "memory://?partitions=1" if request.param == "memory" else f"sqlite:///{tmp_path}/log.db?partitions=1"
    )
    opened = await open_log(url)
    opened.catalogue.register(Seen)
    yield opened
    await opened.close()


@asynccontextmanager
async def running(log: EventLog, home: Path, **options: Any) -> AsyncIterator[Client]:
    agent = agent_from_graph(graph(**options.pop("node", {})), **options)
    async with Worker(log, [agent], home=home), Client(log) as client:
        yield client


async def failed(run: Run, message: str, hint: str | None) -> list[str]:
    """The types of its events, which are numbered without a gap; it has failed in these words."""
    with pytest.raises(RunFailedError) as caught:
        await run.result(timeout=PATIENCE_S)
    assert message in caught.value.message
    assert (hint or "") in (caught.value.hint or "")
    assert len(str(caught.value)) < 600
    records = [record async for record in run.records(follow=False)]
    assert [record.header("noesium_seq") for record in records] == [b"%d" % n for n in range(len(records))]
    last = records[-1].envelope
    assert last.event_type == "run.failed"
    where = last.payload.get("where")
    told = [f"at {where}"] if where else []
    assert (caught.value.hint or "").splitlines() == [*told, *(last.payload.get("hint") or "").splitlines()]
    return [str(record.event_type) for record in records]


async def unharmed(client: Client) -> None:
    run = await client.start("sample", {"what": "ok"})
    assert await run.result(timeout=PATIENCE_S) == {"what": "ok", "value": "b was here"}


@pytest.mark.parametrize("what", list(TOLD))
async def test_what_a_node_may_not_return_is_told_and_nothing_of_it_is_on_the_log(
    log: EventLog, tmp_path: Path, what: str
) -> None:
    async with running(log, tmp_path) as client:
        types = await failed(await client.start("sample", {"what": what}), *TOLD[what])
        await unharmed(client)
    assert types[2:] == ["kernel.node.entered", "kernel.node.failed", "run.failed"]


@pytest.mark.parametrize("what", list(ACTS))
async def test_what_a_step_may_not_hand_over_is_told_with_its_name(
    log: EventLog, tmp_path: Path, what: str
) -> None:
    async with running(log, tmp_path) as client:
        types = await failed(await client.start("sample", {"what": what}), *ACTS[what])
        await unharmed(client)
    called = ["effect.requested", "effect.failed"] if what in ("result", "no JSON") else []
    assert types[2:] == ["kernel.node.entered", *called, "kernel.node.failed", "run.failed"]


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("what", ["large", "event", "result", "question"])
async def test_a_value_of_100_mb_is_told_at_its_own_node_whatever_the_durability(
    log: EventLog, tmp_path: Path, what: str, durability: Durability
) -> None:
    always = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=lambda error: True)
    async with running(log, tmp_path, durability=durability, node={"retry_policy": always}) as client:
        types = await failed(await client.start("sample", {"what": what}), *(TOLD | ACTS)[what])
        await unharmed(client)
    assert types.count("kernel.node.failed") == 1, "the same input would bring the same about"


async def test_the_largest_value_that_is_taken_is_taken(log: EventLog, tmp_path: Path) -> None:
    largest = "y" * (MAX_VALUE_BYTES - len('{"value":""}'))
    seen: list[int] = []
    built = StateGraph(State)
    built.add_node("a", lambda state: {"value": largest})
    built.add_node("b", lambda state: seen.append(len(state["value"])) or {"value": "small"})  # type: ignore[func-returns-value]
    built.add_edge(START, "a")
    built.add_edge("a", "b")
    async with Worker(log, [agent_from_graph(built)], home=tmp_path), Client(log) as client:
        assert await (await client.start("sample", {})).result(timeout=PATIENCE_S) == {"value": "small"}
    assert seen == [len(largest)]


async def test_a_large_value_is_kept_elsewhere_by_its_address_and_its_hash(
    log: EventLog, tmp_path: Path
) -> None:
    content = b"y" * LARGE

    def store(state: State) -> dict[str, Any]:
        path = tmp_path / "content"
        path.write_bytes(content)
        return {"value": {"address": str(path), "sha256": hashlib.sha256(content).hexdigest()}}

    def use(state: State) -> dict[str, Any]:
        found = Path(state["value"]["address"]).read_bytes()
        assert hashlib.sha256(found).hexdigest() == state["value"]["sha256"]
        return {"answer": len(found)}

    built = StateGraph(State)
    built.add_node("store", store)
    built.add_node("use", use)
    built.add_edge(START, "store")
    built.add_edge("store", "use")
    async with Worker(log, [agent_from_graph(built)], home=tmp_path), Client(log) as client:
        assert (await (await client.start("sample", {})).result(timeout=PATIENCE_S))["answer"] == LARGE


async def test_an_effect_outside_that_was_done_and_gave_too_much_waits_for_a_person(
    log: EventLog, tmp_path: Path
) -> None:
    async with running(log, tmp_path) as client:
        run = await client.start("sample", {"what": "done, and large"})
        async for event in run.events():
            if event.event_type == "effect.outcome.unknown":
                break
        assert event.payload["reason"] == (
            "it was done, and its result cannot be recorded: The effect pay: result has 100,000,002 bytes as "
            "JSON, and a step records at most 1,000,000."
        )
        await run.resolve_effect(event.payload["effect_id"], "result", {"receipt": "at the bank"})
        assert (await run.result(timeout=PATIENCE_S))["answer"] == {"receipt": "at the bank"}
        await unharmed(client)


async def test_a_first_state_that_no_log_takes_is_refused_before_there_is_a_run(
    log: EventLog, tmp_path: Path
) -> None:
    async with running(log, tmp_path) as client:
        with pytest.raises(StateError, match=r"input\.value\[0\] is of type lock") as no_json:
            await client.start("sample", {"what": "ok", "value": [threading.Lock()]})
        assert no_json.value.hint
        with pytest.raises(
            NoesiumError, match=r"run\.requested has 100,000,413 bytes, an event takes"
        ) as too_large:
            await client.start("sample", {"what": "ok", "value": "y" * LARGE})
        assert too_large.value.hint
        await unharmed(client)
        assert len(await client.list_runs()) == 1


async def test_a_result_that_is_too_large_is_told_with_its_size(log: EventLog, tmp_path: Path) -> None:
    built = StateGraph(State)
    built.add_node("a", lambda state: {"value": "y" * 600_000})
    built.add_node("b", lambda state: {"answer": "y" * 600_000})
    built.add_edge(START, "a")
    built.add_edge("a", "b")
    async with Worker(log, [agent_from_graph(built)], home=tmp_path), Client(log) as client:
        run = await client.start("sample", {})
        await failed(run, "RecordTooLargeError: The run: result has 1,200,024 bytes", "Store it elsewhere")


# -- questions and ends ----------------------------------------------------------------------------------


async def test_an_answer_to_a_question_that_is_closed_is_refused_and_one_from_elsewhere_changes_nothing(
    log: EventLog, tmp_path: Path
) -> None:
    class Two(TypedDict, total=False):
        first: Any
        second: Any

    async def ask(state: Two) -> dict[str, Any]:
        step = current_step()
        return {"first": (await step.interrupt("1?")).value, "second": (await step.interrupt("2?")).value}

    built = StateGraph(Two)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    async with Worker(log, [agent_from_graph(built)], home=tmp_path), Client(log) as client:
        run = await client.start("sample", {})
        [one] = await asked(run, 1)
        await run.approve(one, value=1)
        _, two = await asked(run, 2)
        with pytest.raises(ApprovalClosedError, match="was approved by client") as closed:
            await run.approve(one, value="late")
        assert closed.value.hint == "The first answer counts."
        # What another program sends all the same, without asking first.
        [question, _] = await run.approvals()
        await run._send(question.answer(True, "late", "somebody"))
        await run.approve(two, value=2)
        assert await run.result(timeout=PATIENCE_S) == {"first": 1, "second": 2}
        with pytest.raises(RunEndedError, match="has ended"):
            await run.approve(two, value="too late")


async def asked(run: Run, count: int) -> list[str]:
    found: list[str] = []
    async for event in run.events():
        if event.event_type == "approval.requested":
            found.append(event.payload["approval_id"])
        if len(found) == count:
            return found
    raise AssertionError("the run ended")


async def test_a_run_that_has_ended_gives_its_result_again_and_takes_no_more(
    log: EventLog, tmp_path: Path
) -> None:
    async with KernelExecutor(graph(), log, "sample", home=tmp_path) as first:
        ended = await first.start({"what": "ok"})
        broken = await first.start({"what": "nan"})
        result = await ended.result(timeout=PATIENCE_S)
        await failed(broken, *TOLD["nan"])
        before = len(await events(ended))
    async with KernelExecutor(graph(), log, "sample", home=tmp_path) as second:
        assert await second.resume(ended.id, timeout=PATIENCE_S) == result
        with pytest.raises(RunFailedError, match="which JSON does not have"):
            await second.resume(broken.id, timeout=PATIENCE_S)
        with pytest.raises(RunEndedError, match="has ended"):
            await ended.approve()
        await ended.signal("go")
        await ended.cancel()
        await unharmed(second.client)  # whose command came after those
        assert len(await events(ended)) == before


async def events(run: Run) -> list[Any]:
    return [event async for event in run.events(follow=False)]


# -- graphs ----------------------------------------------------------------------------------------------


class Keep:
    def __call__(self, old: Any, new: Any) -> Any:
        return new


async def test_a_graph_that_cannot_be_told_from_another_starts_no_worker(
    log: EventLog, tmp_path: Path
) -> None:
    class Kept(TypedDict, total=False):
        what: str
        value: Annotated[Any, Keep()]

    built = StateGraph(Kept)
    built.add_node("a", lambda state: {"value": 1})
    built.add_edge(START, "a")
    async with Client(log) as client:
        waiting = await client.start("sample", {"what": "ok"})
        with pytest.raises(
            KernelError, match=r"reducer of value \(Keep\) cannot be told from another"
        ) as refused:
            async with Worker(log, [agent_from_graph(built)], home=tmp_path):
                raise AssertionError("it has started")
        assert "function with a name" in (refused.value.hint or "")
    async with running(log, tmp_path) as client:
        assert (await (await client.get_run(waiting.id)).result(timeout=PATIENCE_S))["value"] == "b was here"
        await unharmed(client)


def endless() -> StateGraph[Any, Any, Any, Any]:
    built = StateGraph(State)
    built.add_node("a", lambda state: {"value": state.get("value", 0) + 1})
    built.add_edge(START, "a")
    built.add_conditional_edges("a", lambda state: "a", ["a"])
    return built


async def test_a_loop_without_an_end_is_ended_by_the_limit_of_supersteps(
    log: EventLog, tmp_path: Path
) -> None:
    agent = agent_from_graph(endless(), max_supersteps=7)
    async with Worker(log, [agent], home=tmp_path), Client(log) as client:
        types = await failed(
            await client.start("sample", {}),
            "had not ended after 7 supersteps, its limit.",
            "Bound the loop, or raise the agent's max_supersteps.",
        )
    assert types.count("kernel.node.completed") == 7
    async with running(log, tmp_path) as client:
        await unharmed(client)


@pytest.mark.parametrize("dies_at", [60, 130, 149, 150])
async def test_a_run_that_goes_on_elsewhere_has_no_more_supersteps_left_than_before(dies_at: int) -> None:
    agent = agent_from_graph(endless(), max_supersteps=150)
    async with Rehearsal(agent) as rehearsal:
        rehearsal.crash_at(dies_at)
        run = await rehearsal.start({})
        types = await failed(run, "had not ended after 150 supersteps, its limit.", "Bound the loop")
        assert rehearsal.crashes == 1
        assert types.count("kernel.node.completed") == 150


async def test_the_largest_call_and_the_largest_answer_reach_the_other_s_journal() -> None:
    largest = MAX_VALUE_BYTES - len('{"text":""}')
    in_the_answer = largest - len('{"output":}')  # in the provider's own delta

    async def ask(state: State) -> dict[str, Any]:
        answer = await current_step().invoke("text.same", {"text": "y" * state["value"]})
        return {"answer": len(answer["text"])}

    built = StateGraph(State)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    async with Rehearsal(built, capabilities={"text.same": lambda given: given}) as rehearsal:
        run = await rehearsal.start({"value": in_the_answer})
        assert (await run.result())["answer"] == in_the_answer
        run = await rehearsal.start({"value": largest})
        with pytest.raises(
            RunFailedError, match="failed at scripted-provider: The node answer: delta has 1,000,011"
        ):
            await run.result()
