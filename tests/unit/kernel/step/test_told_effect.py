"""A tool call over a journal that dies at any commit, or whose task is cancelled at any await.

Whatever happens, a second execution goes on with what is on the log: an external call is made once at most,
each `tool.invoked` has one end, and an approval is consumed by one call.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.clock import SystemClock
from noesium_stream.errors import CommitUnknownError, ToolPermissionError
from noesium_stream.event.rules.effect_ledger import awaits_decision
from noesium_stream.event.standard import ApprovalAnswered, EffectResolved, SideEffectClass
from noesium_stream.kernel import DurableGraph
from noesium_stream.tool import AtomicTool, Mode, ToolContext, ToolExecutor
from tests.support.journal import RUN_ID, ListJournal
from tests.support.reading import PATIENCE_S

SAID = "a person says so"
made: Counter[str] = Counter()


class Later(SystemClock):
    """Time that can be at a moment that has not come yet."""

    now_ms_least = 0

    def now_ms(self) -> int:
        return max(super().now_ms(), self.now_ms_least)


class People(ListJournal):
    """A journal beside which people are, who decide at once: yes, and what an unknown call has given."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.clock = Later()

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        await self.commit()
        while not ready():
            self._decide()
            if deadline_ms is not None:
                self.clock.now_ms_least = deadline_ms
            await asyncio.sleep(0)

    def _decide(self) -> None:
        history, trace = self.history, self.identity.trace
        for approval_id, asked in list(history.approvals.items()):
            if approval_id not in history.closed:
                answer = ApprovalAnswered(
                    run_id=RUN_ID,
                    approval_id=approval_id,
                    fingerprint=asked.payload["fingerprint"],
                    approved=True,
                    answered_by="ada",
                )
                self.stage(answer, trace=trace, causation_id=asked.event_id)
        for effect_id, outcome in list(history.outcomes.items()):
            if awaits_decision(outcome) and outcome.event_id not in history.resolved:
                decision = EffectResolved(
                    run_id=RUN_ID,
                    effect_id=effect_id,
                    outcome_id=outcome.event_id,
                    decision="result",
                    result=SAID,
                    resolved_by="ada",
                )
                self.stage(decision, trace=trace, causation_id=outcome.event_id)
        self.flush()


async def act(arguments: dict[str, Any], context: ToolContext) -> str:
    """A call with several awaits in it, all of which may be the last thing that its process does."""
    made[context.call_id] += 1
    for _ in range(3):
        await asyncio.sleep(0)
    return f"did {arguments['what']}"


def act_in_thread(arguments: dict[str, Any], context: ToolContext) -> str:
    made[context.call_id] += 1
    return f"did {arguments['what']}"


async def break_down(arguments: dict[str, Any], context: ToolContext) -> str:
    made[context.call_id] += 1
    await asyncio.sleep(0)
    raise ValueError("told to fail")


def tool(name: str, function: Any, effect_class: SideEffectClass, *permissions: str) -> AtomicTool:
    return AtomicTool(
        name,
        "",
        {"type": "object"},
        side_effect_class=effect_class,
        permissions=permissions,
        function=function,
        max_concurrency=2,
    )


EXTERNAL, IDEMPOTENT = SideEffectClass.EXTERNAL, SideEffectClass.IDEMPOTENT
SEND = tool("send", act, EXTERNAL)
SEND_IN_THREAD = tool("send_in_thread", act_in_thread, EXTERNAL)
LABEL = tool("label", act, IDEMPOTENT)
BREAK = tool("break", break_down, EXTERNAL)
OPEN = tool("open", act, EXTERNAL, "parcel:open")
CASES: dict[str, tuple[Mode, tuple[AtomicTool, ...]]] = {
    "an external call": (Mode.AUTO, (SEND,)),
    "an external call in a thread": (Mode.AUTO, (SEND_IN_THREAD,)),
    "an idempotent call": (Mode.AUTO, (LABEL,)),
    "a call that fails": (Mode.AUTO, (BREAK,)),
    "a call that is refused": (Mode.AUTO, (OPEN,)),
    "a call that a person is asked about": (Mode.ACT, (SEND,)),
    "calls one after the other": (Mode.AUTO, (SEND, LABEL, BREAK, SEND)),
    "calls that people are asked about": (Mode.ACT, (SEND, LABEL, SEND)),
}


class State(TypedDict, total=False):
    done: list[str]


def graph_of(case: str, folder: Path) -> DurableGraph:
    mode, tools = CASES[case]
    executor = ToolExecutor("sample", folder, mode=mode, permissions=())

    async def node(state: State) -> State:
        done = []
        for number, one in enumerate(tools):
            try:
                done.append(await executor.run(one, what=number))
            except (ValueError, ToolPermissionError) as error:
                done.append(type(error).__name__)
        return {"done": done}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return DurableGraph(graph.compile())


async def executed(case: str, folder: Path, journal: ListJournal) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        state = await graph_of(case, folder).execute(journal, {}, {"recursion_limit": 100})
    done: list[str] = state["done"]
    return done


def assert_holds(case: str, journal: ListJournal, done: list[str]) -> None:
    _, tools = CASES[case]
    expected = {"break": "ValueError", "open": "ToolPermissionError"}
    for number, (one, result) in enumerate(zip(tools, done, strict=True)):
        unknown = (SAID,) if one.side_effect_class is EXTERNAL and one is not OPEN else ()
        assert result in (expected.get(one.name, f"did {number}"), *unknown)
    told: dict[str, list[str]] = {}
    for event in journal.log:
        if event.event_type.startswith("tool."):
            told.setdefault(event.payload["call_id"], []).append(event.event_type)
    assert len(told) == len(tools)
    ends = (["tool.invoked", "tool.completed"], ["tool.invoked", "tool.failed"], ["tool.denied"])
    assert all(types in ends for types in told.values()), told
    external = {
        event.payload["effect_id"]
        for event in journal.log
        if event.event_type == "effect.requested" and event.payload["effect_class"] == "external"
    }
    assert all(made[call_id] <= 1 for call_id in external)
    asked = [e.payload["approval_id"] for e in journal.log if e.event_type == "approval.requested"]
    invoked = [e.payload for e in journal.log if e.event_type == "tool.invoked"]
    consumed = [payload["approval_id"] for payload in invoked if payload.get("approval_id")]
    assert consumed == asked
    keys = [(e.event_type, e.idempotency_key) for e in journal.log if e.idempotency_key]
    assert len(keys) == len(set(keys))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    made.clear()


@pytest.mark.parametrize("reaches_log", [True, False])
@pytest.mark.parametrize("case", CASES)
async def test_a_death_at_any_commit_leaves_calls_made_once(
    tmp_path: Path, case: str, reaches_log: bool
) -> None:
    whole = People()
    assert_holds(case, whole, await executed(case, tmp_path, whole))
    assert whole.commits >= 2
    for dies_at in range(1, whole.commits + 1):
        made.clear()
        dying = People(dies_at=dies_at, reaches_log=reaches_log)
        with pytest.raises(CommitUnknownError):
            await executed(case, tmp_path, dying)
        second = People(dying.log)
        assert_holds(case, second, await executed(case, tmp_path, second))


@pytest.mark.parametrize("case", CASES)
async def test_a_cancellation_at_any_await_leaves_calls_made_once(tmp_path: Path, case: str) -> None:
    cut = 0
    for steps in range(1_000):
        made.clear()
        first = People()
        task = asyncio.create_task(executed(case, tmp_path, first))
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        await asyncio.wait([task])
        cut += task.cancelled()
        second = People(first.log)
        assert_holds(case, second, await executed(case, tmp_path, second))
    assert cut > 5
    assert task.done()
