"""A dry fork: what a run would do with other values, without doing it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import RetryPolicy

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client
from noesium_stream.client.operate.fork import dry_fork, fork
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.client.run import Run
from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, graph_ref
from noesium_stream.kernel.dry_run.dry_run import DryRun
from noesium_stream.kernel.dry_run.dry_run_journal import MAX_CALLS, DryStep
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S
from tests.unit.kernel.verify.test_verifier_shapes import Graph, State, chain

CALLED: Counter[str] = Counter()
PURE, IDEMPOTENT = SideEffectClass.PURE, SideEffectClass.IDEMPOTENT


class Paid(DomainEvent, event_type="test.paid"):
    amount: int


def outside(name: str, amount: int = 0) -> str:
    CALLED[name] += 1
    return f"{name} {amount}"


def failing(amount: int) -> None:
    CALLED["failing"] += 1
    raise ValueError("the card is stolen")


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    CALLED.clear()


def target(graph: Graph) -> ReplayTarget:
    compiled = graph.compile()
    return ReplayTarget(compiled, graph_ref(compiled, "sample", "1.0.0"), agent_type="sample")


async def finished(client: Client, **given: Any) -> Run:
    run = await client.start("sample", {"n": 1, "items": [], **given})
    await run.result(timeout=PATIENCE_S)
    return run


async def tried(graph: Graph, client: Client, parent: Run, at: int, **values: Any) -> DryRun:
    """A dry fork that leaves the log as it is, and calls nothing but what it says."""
    before, called = await records(client), CALLED.copy()
    found = await dry_fork(parent, at, values, target(graph))
    assert await records(client) == before
    pure = [names(step)[0] for step in found.steps for kind, payload in step.calls if is_pure(kind, payload)]
    assert (CALLED - called).total() == len(pure)
    return found


async def records(client: Client) -> list[Any]:
    return [topic for topic in await client.log.topics() if ".agent." in topic.name]


def is_pure(kind: str, payload: dict[str, Any]) -> bool:
    return kind == "effect.requested" and payload["effect_class"] == "pure"


def names(step: DryStep) -> list[str]:
    return [payload.get("name") or kind for kind, payload in step.calls]


async def pay(state: dict[str, Any]) -> dict[str, Any]:
    return {"value": await current_step().effect("pay", outside, "pay", state["n"])}


async def after(state: dict[str, Any]) -> dict[str, Any]:
    await current_step().effect("after", outside, "after")
    return {"items": [state["value"]]}


async def test_a_new_effect_is_shown_and_not_made_and_nothing_after_it_runs(tmp_path: Path) -> None:
    graph = chain(first=lambda state: {"items": ["a"]}, pay=pay, after=after)
    async with running(graph, tmp_path) as client:
        parent = await finished(client)
        found = await tried(graph, client, parent, 1, n=20)
        assert CALLED == {"pay": 1, "after": 1}
        assert (found.outcome, found.result) == ("stopped", None)
        [step] = found.steps
        assert (step.key[0], step.node, step.outcome) == (2, "pay", "open")
        [(kind, payload)] = step.calls
        assert (kind, payload["name"], payload["arguments"]["args"]) == (
            "effect.requested",
            "pay",
            ["pay", 20],
        )
        run = await fork(client, parent, 1, {"n": 20}, target(graph))
        assert (await run.result(timeout=PATIENCE_S))["value"] == "pay 20"
    assert CALLED == {"pay": 2, "after": 2}


async def test_a_recorded_effect_gives_what_it_gave_and_is_not_made_again(tmp_path: Path) -> None:
    graph = chain(first=lambda state: {}, pay=pay, after=after)
    async with running(graph, tmp_path) as client:
        parent = await finished(client)
        found = await tried(graph, client, parent, 0)
        assert (found.outcome, found.result["items"]) == ("completed", ["pay 1"])
        assert [step.outcome for step in found.steps] == ["completed"] * 3
        assert [event.payload["name"] for step in found.steps for event in step.reused.values()] == [
            "pay",
            "after",
        ]
        assert all(not step.calls for step in found.steps)


async def test_of_new_effects_only_pure_ones_are_called(tmp_path: Path) -> None:
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        step, n = current_step(), state["n"]
        found = await step.effect("look", outside, "look", n, effect_class=PURE)
        await step.effect("put", outside, "put", n, effect_class=IDEMPOTENT)
        return {"value": found}

    graph = chain(work=work)
    async with running(graph, tmp_path) as client:
        found = await tried(graph, client, await finished(client), 0, n=2)
    assert found.outcome == "stopped"
    assert names(found.steps[0]) == ["look", "put"]
    assert CALLED == {"look": 2, "put": 1}


async def test_calls_of_one_node_are_all_shown(tmp_path: Path) -> None:
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        calls = (current_step().effect(name, outside, name, state["n"]) for name in ("a", "b", "c"))
        return {"items": await asyncio.gather(*calls)}

    graph = chain(work=work)
    async with running(graph, tmp_path) as client:
        found = await tried(graph, client, await finished(client), 0, n=2)
    assert sorted(names(found.steps[0])) == ["a", "b", "c"]


async def test_a_node_that_takes_every_error_does_not_go_on_without_a_result(tmp_path: Path) -> None:
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        try:
            return {"value": await step.effect("pay", outside, "pay", state["n"])}
        except Exception:
            await step.effect("complain", outside, "complain")
            return {"value": "failed"}

    async def gathered(state: dict[str, Any]) -> dict[str, Any]:
        call = current_step().effect("pay", outside, "pay", state["n"])
        return {"items": [str(found) for found in await asyncio.gather(call, return_exceptions=True)]}

    for graph in (chain(work=work), chain(work=gathered)):
        async with running(graph, tmp_path) as client:
            found = await tried(graph, client, await finished(client), 0, n=2)
        assert found.outcome == "stopped"
        assert names(found.steps[0]) == ["pay"]


async def test_a_sync_node_and_a_call_with_a_time_limit_stop_in_the_same_way(tmp_path: Path) -> None:
    def work(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        return {"value": step.run_sync(step.effect("pay", outside, "pay", state["n"]))}

    async def limited(state: dict[str, Any]) -> dict[str, Any]:
        call = current_step().effect("pay", outside, "pay", state["n"])
        return {"value": await asyncio.wait_for(call, PATIENCE_S)}

    for graph in (chain(work=work), chain(work=limited)):
        async with running(graph, tmp_path) as client:
            parent = await finished(client)
            assert (await tried(graph, client, parent, 0)).outcome == "completed"
            found = await tried(graph, client, parent, 0, n=2)
        assert found.outcome == "stopped"
        assert names(found.steps[0]) == ["pay"]


async def test_another_agent_is_not_asked(tmp_path: Path) -> None:
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        if state["n"] > 1:
            return {"value": await current_step().invoke("text.upper", {"text": str(state["n"])})}
        return {}

    graph = chain(work=work)
    async with running(graph, tmp_path) as client:
        found = await tried(graph, client, await finished(client), 0, n=2)
    [(kind, payload)] = found.steps[0].calls
    assert (kind, payload["capability_id"], payload["input"]) == (
        "capability.invoked",
        "text.upper",
        {"text": "2"},
    )


async def test_an_answer_is_taken_from_the_record_and_a_new_question_is_not_asked(tmp_path: Path) -> None:
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        answer = await step.interrupt(f"Pay {state['n']}?", timeout=timedelta(days=1), on_timeout="reject")
        return {"items": [answer.approved, await step.signal("go")]}

    graph = chain(first=lambda state: {}, work=work)
    async with running(graph, tmp_path) as client:
        parent = await client.start("sample", {"n": 1, "items": []})
        async for event in parent.events():
            if event.event_type == "approval.requested":
                break
        await parent.approve(by="ada")
        await parent.signal("go", 7)
        assert (await parent.result(timeout=PATIENCE_S))["items"] == [True, 7]
        same = await tried(graph, client, parent, 1)
        assert (same.outcome, same.result["items"]) == ("completed", [True, 7])
        [reused] = same.steps[0].reused.values()
        assert (reused.event_type, reused.payload["question"]) == ("approval.requested", "Pay 1?")
        other = await tried(graph, client, parent, 1, n=2)
    assert other.outcome == "stopped"
    [(kind, payload)] = other.steps[0].calls
    assert (kind, payload["question"]) == ("approval.requested", "Pay 2?")


async def test_pauses_are_over_at_once_and_events_are_shown(tmp_path: Path) -> None:
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        if state["n"] > 1:
            await step.sleep(timedelta(days=30))
            step.emit(Paid(amount=state["n"]))
        return {"value": step.now().isoformat()}

    graph = chain(work=work)
    async with running(graph, tmp_path) as client:
        parent = await finished(client)
        then = (await parent.result())["value"]
        found = await tried(graph, client, parent, 0, n=2)
    assert found.outcome == "completed"
    assert found.result["value"] == then
    [step] = found.steps
    assert names(step) == ["timer.started"]
    assert step.events == [("test.paid", {"amount": 2})]


async def test_a_signal_that_never_came_stops_it(tmp_path: Path) -> None:
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": await current_step().signal("go") if state["n"] > 1 else None}

    graph = chain(work=work)
    async with running(graph, tmp_path) as client:
        found = await tried(graph, client, await finished(client), 0, n=2)
    assert found.outcome == "stopped"
    assert found.steps[0].waits is not None


async def test_a_step_that_polls_stops_at_the_limit_of_calls_and_pauses(tmp_path: Path) -> None:
    ended: list[str] = []

    async def work(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        for _ in range(MAX_CALLS if state["n"] > 1 else 0):  # for good, if nothing stops it
            await step.effect("look", outside, "look", state["n"], effect_class=PURE)
            await step.sleep(60)
        ended.append("work")
        return {}

    graph = chain(work=work)
    async with running(graph, tmp_path) as client:
        parent = await finished(client)
        ended.clear()
        found = await dry_fork(parent, 0, {"n": 2}, target(graph))
    assert (found.outcome, ended) == ("stopped", [])
    [step] = found.steps
    assert (step.outcome, step.polls, step.waits) == ("open", True, None)
    assert Counter(names(step)) == {"look": MAX_CALLS // 2, "timer.started": MAX_CALLS // 2}
    assert CALLED == {"look": MAX_CALLS // 2}


async def test_a_node_that_tries_again_after_every_error_stops(tmp_path: Path) -> None:
    tries: list[int] = []

    async def pay_somehow(n: int) -> str:
        for attempt in range(5_000):  # for good, if nothing stops it
            tries.append(attempt)
            try:
                return str(await current_step().effect("pay", outside, "pay", n))
            except Exception:
                await asyncio.sleep(0)
        return "never"

    async def alone(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": await pay_somehow(state["n"])}

    async def beside(state: dict[str, Any]) -> dict[str, Any]:
        look = current_step().signal("go") if state["n"] > 1 else asyncio.sleep(0)
        return {"items": await asyncio.gather(pay_somehow(state["n"]), look)}

    for graph in (chain(work=alone), chain(work=beside)):
        async with running(graph, tmp_path) as client:
            parent = await finished(client)
            tries.clear()
            found = await tried(graph, client, parent, 0, n=2)
        assert found.outcome == "stopped"
        assert names(found.steps[0]) == ["pay"]
        assert len(tries) < 200


async def test_a_fork_that_would_fail_says_so_after_its_attempts(tmp_path: Path) -> None:
    def check(state: dict[str, Any]) -> dict[str, Any]:
        if state["n"] > 1:
            raise ValueError("too much")
        return {}

    retry = RetryPolicy(max_attempts=2, initial_interval=3600, retry_on=Exception)
    graph = chain(retry, check=check)
    async with running(graph, tmp_path) as client:
        found = await tried(graph, client, await finished(client), 0, n=2)
    assert (found.outcome, found.error) == ("failed", "ValueError: too much")
    assert (found.steps[0].outcome, found.steps[0].error) == ("failed", "ValueError: too much")


async def test_a_recorded_failure_fails_again(tmp_path: Path) -> None:
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        try:
            await current_step().effect("charge", failing, 5)
        except ValueError as error:
            return {"value": str(error)}
        return {}

    graph = chain(work=work)
    async with running(graph, tmp_path) as client:
        found = await tried(graph, client, await finished(client), 0, n=2)
    assert found.result["value"] == "the card is stolen"
    assert CALLED == {"failing": 1}


async def test_an_effect_without_a_recorded_outcome_is_new(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def work(state: dict[str, Any]) -> dict[str, Any]:
        await current_step().effect("hang", hang, effect_class=IDEMPOTENT)
        return {}

    graph = chain(work=work)
    async with running(graph, tmp_path) as client:
        parent = await client.start("sample", {"n": 1, "items": []})
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        begun.clear()
        found = await tried(graph, client, parent, 0)
    assert found.outcome == "stopped"
    assert names(found.steps[0]) == ["hang"]
    assert not begun.is_set()


async def test_a_dry_fork_is_refused_where_a_fork_is(tmp_path: Path) -> None:
    graph = chain(pay=pay)
    async with running(graph, tmp_path) as client:
        parent = await finished(client)
        with pytest.raises(ConfigError, match="has no completed step 9"):
            await dry_fork(parent, 9, {}, target(graph))
        with pytest.raises(ConfigError, match="The state has no 'nothing'"):
            await dry_fork(parent, 1, {"nothing": 1}, target(graph))


class Looking(BaseGraphicAgent):
    """Looks two things up at a time, with what `start` has made."""

    agent_type = "looking"

    async def start(self) -> None:
        CALLED["start"] += 1
        for _ in range(20):
            await asyncio.sleep(0)  # what is called meanwhile finds no book
        self.book = {1: "one", 2: "two", 3: "three", 4: "four"}

    async def stop(self) -> None:
        CALLED["stop"] += 1

    def get_state_class(self) -> type[Any]:
        return State

    def _build_graph(self) -> Graph:
        return chain(look=self.look)

    async def look(self, state: dict[str, Any]) -> dict[str, Any]:
        calls = (
            current_step().effect("look", self.in_book, state["n"] + i, effect_class=PURE) for i in (0, 1)
        )
        return {"items": await asyncio.gather(*calls)}

    async def in_book(self, n: int) -> str:
        return self.book[n]


class Unable(Looking):
    """Starts in a worker, and not a second time."""

    agent_type = "unable"

    async def start(self) -> None:
        await super().start()
        if BROKEN:
            raise OSError("no book")


BROKEN: list[str] = []


async def dry_fork_of(agent: type[Looking], tmp_path: Path, **values: Any) -> DryRun:
    """A dry fork of a finished run, in which `CALLED` counts anew."""
    log = await open_log("memory://")
    try:
        async with Worker(log, [agent], home=tmp_path), Client(log) as client:
            parent = await client.start(agent.agent_type, {"n": 1, "items": []})
            await parent.result(timeout=PATIENCE_S)
            CALLED.clear()
            BROKEN.append("now")
            try:
                found = await dry_fork(parent, 0, values, agent_target(agent, log))
            finally:
                BROKEN.clear()
            seen = CALLED.copy()
        CALLED.clear()
        CALLED.update(seen)
        return found
    finally:
        await log.close()


async def test_an_agent_is_not_started_if_no_pure_effect_is_called(tmp_path: Path) -> None:
    assert (await dry_fork_of(Looking, tmp_path)).outcome == "completed"
    assert not CALLED


async def test_an_agent_is_started_once_before_the_first_of_several_pure_effects(tmp_path: Path) -> None:
    found = await dry_fork_of(Looking, tmp_path, n=3)
    assert (found.outcome, found.error) == ("completed", None)
    assert found.result["items"] == ["three", "four"]
    assert CALLED == {"start": 1, "stop": 1}


async def test_an_agent_that_cannot_start_is_tried_once_and_fails_every_pure_effect(tmp_path: Path) -> None:
    found = await dry_fork_of(Unable, tmp_path, n=3)
    assert (found.outcome, found.error) == ("failed", "OSError: no book")
    assert CALLED == {"start": 1}
