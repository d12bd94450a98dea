"""Rehearsals: real workers, scripted others, crashes at a chosen commit, time that passes by itself."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent, agent_from_graph
from noesium_stream.errors import RehearsalError, RunFailedError, RunTimeoutError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import Durability, current_step
from noesium_stream.llm import JournaledLLM
from noesium_stream.testing import AutoClock, Rehearsal, ScriptedModel
from noesium_stream.testing import rehearsal as rehearsal_module
from tests.support.reading import PATIENCE_S
from tests.support.sample_agents import Asker

IDEMPOTENT = SideEffectClass.IDEMPOTENT


class Order(TypedDict, total=False):
    order: int
    checked: bool
    refund: str
    letter: str


class Shop:
    """check -> refund (an effect) -> letter (a model); counts how often each body ran."""

    def __init__(self, effect_class: SideEffectClass = IDEMPOTENT) -> None:
        self.bodies: Counter[str] = Counter()
        self.paid = 0
        self._class = effect_class
        self._llm = JournaledLLM(ScriptedModel(["never asked"]))

    async def check(self, state: Order) -> Order:
        self.bodies["check"] += 1
        return {"checked": True}

    async def refund(self, state: Order) -> Order:
        self.bodies["refund"] += 1
        answer = await current_step().effect("refund", self.pay, state["order"], effect_class=self._class)
        return {"refund": answer}

    async def letter(self, state: Order) -> Order:
        self.bodies["letter"] += 1
        return {"letter": await self._llm.complete(f"write about {state['order']}")}

    def pay(self, order: int) -> str:
        self.paid += 1
        return f"paid {order}"

    @property
    def graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Order)
        for name in ("check", "refund", "letter"):
            graph.add_node(name, getattr(self, name))
        for source, target in ((START, "check"), ("check", "refund"), ("refund", "letter"), ("letter", END)):
            graph.add_edge(source, target)
        return graph

    @property
    def agent(self) -> type[BaseGraphicAgent]:
        """With each step on the log before the next one begins, so that none before a crash is repeated."""
        return agent_from_graph(self.graph, durability=Durability.SYNC)


DONE = {"order": 7, "checked": True, "refund": "done", "letter": "Dear you"}


async def test_a_graph_with_a_scripted_model_and_effect_survives_a_crash_in_five_lines():
    shop, model = Shop(), ScriptedModel(["Dear you"])
    async with Rehearsal(shop.agent, model=model, effects={"refund": ["done"]}) as rehearsal:
        rehearsal.crash_after("kernel.node.completed", 1)
        run = await rehearsal.start({"order": 7})
        assert await run.result() == DONE
        assert (rehearsal.call_count("refund"), rehearsal.crashes, shop.paid) == (1, 1, 0)
    assert rehearsal.calls("refund")[0].args == (7,)
    assert model.prompts == ["write about 7"]
    assert shop.bodies == {"check": 1, "refund": 1, "letter": 1}


@pytest.mark.parametrize("subject", ["graph", "compiled"])
async def test_effects_without_a_script_are_performed_and_counted(subject: str):
    shop = Shop()
    graph = shop.graph if subject == "graph" else shop.graph.compile()
    async with Rehearsal(graph, model=ScriptedModel(["x"])) as rehearsal:
        run = await rehearsal.start({"order": 8})
        assert (await run.result())["refund"] == "paid 8"
        assert rehearsal.call_count("refund") == shop.paid == 1


@pytest.mark.parametrize(
    "event_type", ["effect.requested", "effect.completed", "run.started", "run.completed"]
)
@pytest.mark.parametrize("side", ["after", "before"])
async def test_the_result_is_the_same_wherever_the_worker_dies(event_type: str, side: str):
    shop = Shop()
    scripts = {"refund": ["done"]}
    async with Rehearsal(shop.agent, model=ScriptedModel(["Dear you"]), effects=scripts) as rehearsal:
        getattr(rehearsal, f"crash_{side}")(event_type)
        run = await rehearsal.start({"order": 7})
        assert await run.result() == DONE
        await rehearsal.wait_for_crash()
        assert rehearsal.crashes == 1
        kinds = Counter(event.event_type for event in await run.history())
    assert (kinds["run.completed"], kinds["kernel.node.completed"]) == (1, 3)
    assert shop.bodies["check"] == 1


async def test_a_crash_between_call_and_record_repeats_an_idempotent_effect_under_its_key():
    shop = Shop()
    scripts = {"refund": ["done"]}
    async with Rehearsal(shop.graph, model=ScriptedModel(["Dear you"]), effects=scripts) as rehearsal:
        rehearsal.crash_before("effect.completed")
        run = await rehearsal.start({"order": 7})
        assert await run.result() == DONE
        first, second = rehearsal.calls("refund")
        assert first.key == second.key is not None


async def test_a_crash_at_a_step_leaves_that_step_undone_and_those_before_it_done():
    shop = Shop()
    scripts = {"refund": ["done"]}
    async with Rehearsal(shop.graph, model=ScriptedModel(["Dear you"]), effects=scripts) as rehearsal:
        rehearsal.crash_at(2, restart=False)
        run = await rehearsal.start({"order": 7})
        await rehearsal.wait_for_crash()
        nodes = [e.payload["node"] for e in await run.history() if e.event_type == "kernel.node.completed"]
        assert nodes == ["check"]
        with pytest.raises(RehearsalError, match="no worker that could crash"):
            rehearsal.crash_at(3)
        await rehearsal.restart()
        assert await run.result() == DONE
    assert shop.bodies == {"check": 1, "refund": 2, "letter": 1}


async def test_a_worker_can_be_killed_while_a_node_waits():
    class State(TypedDict, total=False):
        word: str

    begun = asyncio.Event()

    async def wait(state: State) -> State:
        begun.set()
        return {"word": await current_step().signal("go")}

    graph = StateGraph(State)
    graph.add_node("wait", wait)
    graph.add_edge(START, "wait")
    graph.add_edge("wait", END)
    async with Rehearsal(graph) as rehearsal:
        run = await rehearsal.start()
        await begun.wait()
        await rehearsal.crash()
        await run.signal("go", "on")
        assert await run.result() == {"word": "on"}
        with pytest.raises(RehearsalError, match="nothing to restart"):
            await rehearsal.restart()


async def test_the_dead_write_nothing_more():
    class State(TypedDict, total=False):
        done: bool

    release, told = asyncio.Event(), asyncio.Event()
    lives = 0

    async def outside() -> str:
        nonlocal lives
        lives += 1
        if lives == 1:
            told.set()
            await release.wait()
        return "done"

    async def node(state: State) -> State:
        await current_step().effect("outside", outside, effect_class=IDEMPOTENT)
        return {"done": True}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    async with Rehearsal(graph) as rehearsal:
        run = await rehearsal.start()
        await told.wait()
        await rehearsal.crash(restart=False)
        before = [event.event_id for event in await run.history()]
        release.set()
        await asyncio.sleep(0)
        assert [event.event_id for event in await run.history()] == before
        registry = rehearsal.log.topology.registry
        end = await rehearsal.log.end(registry)
        life = [r.event_type async for r in rehearsal.log.read(registry, {}, until=end)]
        assert "agent.stopped" not in life
        await rehearsal.restart()
        assert await run.result() == {"done": True}


async def test_a_scripted_provider_answers_delegated_calls():
    scripts = {"text.echo": [{"reply": "ONE"}, {"reply": "TWO"}]}
    async with Rehearsal(Asker, capabilities=scripts, effects={"outside": ["ok"]}) as rehearsal:
        rehearsal.crash_after("capability.invoked", 2)
        run = await rehearsal.start({"words": ["a", "b"]})
        assert (await run.result())["replies"] == ["ONE", "TWO"]
        assert [call.args[0] for call in rehearsal.calls("text.echo")] == [{"text": "a"}, {"text": "b"}]


async def test_a_run_that_waits_for_a_provider_without_a_script_is_told_when_the_time_is_over():
    async with Rehearsal(Asker, capabilities={"text.ecco": []}, effects={"outside": ["ok"]}) as rehearsal:
        run = await rehearsal.start({"words": ["a"]})
        await run.wait_for("capability.requested")
        with pytest.raises(RunTimeoutError) as caught:
            await run.result(timeout=0.05)
        assert caught.value.hint == "It waits for a provider of text.echo ^1."


async def test_a_run_is_not_given_up_because_the_machine_stood_still_before_its_answer_came(monkeypatch):
    monkeypatch.setattr(rehearsal_module, "PATIENCE_S", 6.0)
    async with Rehearsal(slow(ask)) as rehearsal:
        run = await rehearsal.start()
        await run.wait_for("approval.requested")

        async def stand_still_and_answer() -> None:
            await asyncio.sleep(0.01)
            time.sleep(3.2)  # more than half of the patience
            await run.answer("red")

        answering = asyncio.create_task(stand_still_and_answer())
        assert (await run.result())["answer"] == "red"
        await answering


async def test_a_run_that_waits_for_something_from_outside_is_given_up_sooner_than_one_that_works(
    monkeypatch,
):
    monkeypatch.setattr(rehearsal_module, "PATIENCE_S", 0.05)
    go_on = asyncio.Event()

    async def slow(state: Slow) -> Slow:
        await go_on.wait()
        return {"answer": "there"}

    builder = StateGraph(Slow)
    builder.add_node("slow", slow)
    builder.add_edge(START, "slow")
    async with Rehearsal(builder) as rehearsal:
        run = await rehearsal.start()
        asyncio.get_running_loop().call_later(0.3, go_on.set)
        assert await run.result() == {"answer": "there"}
    async with Rehearsal(Asker, capabilities={"text.ecco": []}, effects={"outside": ["ok"]}) as rehearsal:
        run = await rehearsal.start({"words": ["a"]})
        await run.wait_for("capability.requested")
        with pytest.raises(RunTimeoutError, match=r"after 0\.05 s"):
            await run.result()


async def test_more_calls_than_answers_fail_the_run_and_say_which():
    async with Rehearsal(Shop().graph, effects={"refund": []}) as rehearsal:
        run = await rehearsal.start({"order": 7})
        with pytest.raises(RunFailedError, match="the effect refund has 0 answers, and this is call 1: 7"):
            await run.result()


async def test_an_agent_class_gets_the_model_as_its_own():
    class Writer(BaseGraphicAgent):
        agent_type = "writer"

        def get_state_class(self) -> type[Any]:
            return Order

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            graph = StateGraph(Order)
            graph.add_node("write", self.write)
            graph.add_edge(START, "write")
            graph.add_edge("write", END)
            return graph

        async def write(self, state: Order) -> Order:
            assert self.llm is not None
            return {"letter": await self.llm.complete("write")}

    async with Rehearsal(Writer, model=ScriptedModel(lambda prompt: prompt.upper())) as rehearsal:
        run = await rehearsal.start({"order": 1})
        assert (await run.result())["letter"] == "WRITE"


async def test_a_worker_that_fails_ends_who_waits_for_a_result():
    class Broken(Asker):
        async def start(self) -> None:
            raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        async with Rehearsal(Broken):
            pass


async def test_a_month_passes_in_a_node_and_the_log_has_its_times():
    clock = AutoClock()

    class State(TypedDict, total=False):
        days: int

    async def month(state: State) -> State:
        for _ in range(30):
            await clock.sleep(86_400)
        return {"days": 30}

    graph = StateGraph(State)
    graph.add_node("month", month)
    graph.add_edge(START, "month")
    graph.add_edge("month", END)
    began = time.perf_counter()
    async with Rehearsal(graph, clock=clock) as rehearsal:
        run = await rehearsal.start()
        assert await run.result() == {"days": 30}
        completed = next(e for e in await run.history() if e.event_type == "kernel.node.completed")
    assert completed.payload["duration_ms"] == 30 * 86_400_000
    assert time.perf_counter() - began < PATIENCE_S


async def test_two_rehearsals_of_one_seed_write_the_same_journal():
    async def journal() -> list[tuple[str, str, int]]:
        scripts = {"refund": ["done"]}
        async with Rehearsal(Shop().graph, model=ScriptedModel(["x"]), effects=scripts) as rehearsal:
            rehearsal.crash_after("effect.requested", 1)
            run = await rehearsal.start({"order": 7})
            await run.result()
            return [(e.event_id, e.event_type, e.timestamp_ms) for e in await run.history()]

    assert await journal() == await journal()


async def test_an_event_number_zero_and_a_second_crash_are_refused():
    async with Rehearsal(Shop().graph) as rehearsal:
        with pytest.raises(RehearsalError, match="no event number 0"):
            rehearsal.crash_after("run.started", 0)
        rehearsal.crash_after("run.started")
        with pytest.raises(RehearsalError, match="armed already"):
            rehearsal.crash_after("run.completed")


@pytest.mark.parametrize("turns", range(0, 60, 6))
async def test_a_test_that_fails_before_its_crash_ends(turns: int):
    async def failing() -> None:
        async with Rehearsal(Shop().graph) as rehearsal:
            rehearsal.crash_after("kernel.node.completed", 2)
            await rehearsal.start({"order": 7})
            for _ in range(turns):
                await asyncio.sleep(0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(failing(), PATIENCE_S)


class Slow(TypedDict, total=False):
    slept: int
    answer: str
    decision: str


def slow(*nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(Slow)
    names = [node.__name__ for node in nodes]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for source, target in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(source, target)
    return graph


async def month(state: Slow) -> Slow:
    step = current_step()
    for _ in range(30):
        await step.sleep(timedelta(days=1))
    return {"slept": 30}


async def ask(state: Slow) -> Slow:
    answer = await current_step().interrupt("which colour?", timeout=timedelta(days=7), on_timeout="reject")
    return {"answer": answer.value, "decision": answer.decision}


async def test_a_month_of_durable_timers_and_a_crash_among_them_pass_at_once():
    began = time.perf_counter()
    async with Rehearsal(slow(month)) as rehearsal:
        rehearsal.crash_after("timer.started", 10)
        run = await rehearsal.start()
        assert await run.result() == {"slept": 30}
        events = await run.history()
    kinds = Counter(event.event_type for event in events)
    assert (kinds["timer.started"], kinds["timer.fired"], rehearsal.crashes) == (30, 30, 1)
    assert events[-1].timestamp_ms - events[0].timestamp_ms >= 30 * 86_400_000
    assert time.perf_counter() - began < PATIENCE_S


async def test_a_question_is_answered_when_it_is_asked_and_after_a_crash():
    async with Rehearsal(slow(month, ask)) as rehearsal:
        rehearsal.crash_after("approval.requested")
        run = await rehearsal.start()
        answered = await run.answer("blue", by="ada")
        assert answered.question == "which colour?"
        assert (await run.result())["answer"] == "blue"
        with pytest.raises(RehearsalError, match=r"ended without the 2\. approval\.requested"):
            await run.answer("red")


async def test_a_question_that_nobody_answers_runs_out_of_its_week():
    async with Rehearsal(slow(ask)) as rehearsal:
        run = await rehearsal.start()
        await run.result()
        asked, expired = [await run.wait_for(kind) for kind in ("approval.requested", "approval.expired")]
    assert expired.timestamp_ms - asked.timestamp_ms == 7 * 86_400_000
