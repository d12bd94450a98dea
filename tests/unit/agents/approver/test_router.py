"""The approver: who is asked when, under a clock that jumps; what is answered, and by whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from agents.approver import Approver
from agents.approver.case import CASE, ApproverCase
from agents.approver.router import ApproverOptions
from noesium_stream import BaseGraphicAgent, Client, Run, current_step
from noesium_stream.errors import TopicNotFoundError
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import AutoClock
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually, stored

HOUR_MS = 3_600_000
RULES = """
[[rule]]
agent = "clerk"
tool = "refund"
when = "cents > 5000"
ask = ["ada", "bob"]
remind = "2h"
escalate = "5h"

[[rule]]
agent = "clerk"
tool = "refund"
ask = ["cleo"]
remind = "1h"
escalate = "1h"
default = "wait"
"""


class Claim(TypedDict, total=False):
    cents: int
    tool: str
    approvers: list[str]
    minimum: int
    answer: Any


class Clerk(BaseGraphicAgent):
    """Asks whether it may pay something back."""

    agent_type = "clerk"

    def get_state_class(self) -> type[Claim]:
        return Claim

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        return StateGraph(Claim).add_node("ask", self.ask).add_edge(START, "ask")

    async def ask(self, state: Claim) -> dict[str, Any]:
        answer = await current_step().interrupt(
            {"tool": state.get("tool", "refund"), "arguments": {"cents": state["cents"]}},
            approvers=state.get("approvers") or [],
            minimum=state.get("minimum"),
        )
        return {"answer": answer.approved}


class Office:
    """A log with a clerk, the approver and its cases, whose worker can be replaced."""

    def __init__(self, log: EventLog, clock: AutoClock, client: Client, folder: Path) -> None:
        self.log, self.clock, self.client, self.folder = log, clock, client, folder
        self.rules = folder / "approver.toml"
        self.rules.write_text(RULES)
        self.workers = 0

    def worker(self) -> Worker:
        self.workers += 1
        agents = [Clerk, (Approver, ApproverOptions(rules=self.rules)), ApproverCase]
        return Worker(self.log, agents, home=self.folder / str(self.workers), clock=self.clock)

    async def asked(self) -> list[tuple[str, int, bool, int]]:
        """Who was told, how often, whether another one had been before, and after how many hours."""
        try:
            cases = await stored(self.log, self.log.topology.journal(CASE), types=("approver.asked",))
        except TopicNotFoundError:
            return []
        events = sorted((record.envelope for record in cases), key=lambda event: event.timestamp_ms)
        return [
            (
                event.payload["to"],
                event.payload["number"],
                event.payload["escalated"],
                round((event.timestamp_ms - events[0].timestamp_ms) / HOUR_MS),
            )
            for event in events
        ]

    async def case_ended(self, number: int = 1) -> bool:
        ended = [one for one in await self.client.list_runs(agent_type=CASE) if one.ended_ms is not None]
        return len(ended) == number


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    clock = AutoClock()
    clock.attach()
    async with AsyncExitStack() as stack:
        log = await open_log("memory://", clock=clock)
        stack.push_async_callback(log.close)
        client = await stack.enter_async_context(Client(log, clock=clock))
        yield Office(log, clock, client, tmp_path)


async def answered(run: Run) -> Any:
    (question,) = await run.approvals()
    return question.status, question.approved, question.answered_by


async def test_people_are_told_reminded_and_followed_by_the_next_and_at_the_end_it_is_denied(
    office: Office,
) -> None:
    async with office.worker():
        run = await office.client.start("clerk", {"cents": 9_000})
        await run.result(PATIENCE_S)
        await eventually(office.case_ended)
    assert await office.asked() == [
        ("ada", 1, False, 0),
        ("ada", 2, False, 2),
        ("ada", 3, False, 4),
        ("bob", 1, True, 5),
        ("bob", 2, True, 7),
        ("bob", 3, True, 9),
    ]
    assert await answered(run) == ("answered", False, "approver")
    (decided,) = await stored(office.log, office.log.topology.journal(CASE), types=("approver.decided",))
    assert decided.envelope.payload["denied"] is True


async def test_a_worker_that_comes_a_week_later_goes_on_and_tells_nobody_twice(office: Office) -> None:
    async with office.worker():
        run = await office.client.start("clerk", {"cents": 9_000})

        async def is_told() -> bool:
            return len(await office.asked()) >= 2

        await eventually(is_told)
    told = len(await office.asked())
    office.clock.advance(7 * 86_400)
    async with office.worker():
        await run.result(PATIENCE_S)
        await eventually(office.case_ended)
    asked = await office.asked()
    assert [one[:2] for one in asked] == [
        ("ada", 1),
        ("ada", 2),
        ("ada", 3),
        ("bob", 1),
        ("bob", 2),
        ("bob", 3),
    ]
    assert told <= len(asked)


@pytest.mark.parametrize("is_there", [False, True])
async def test_people_are_asked_about_a_run_of_a_later_generation(office: Office, is_there: bool) -> None:
    """Whether the approver was there when the clerk's topics were outgrown, or came later."""
    async with AsyncExitStack() as stack:
        if is_there:
            await stack.enter_async_context(office.worker())
            await (await office.client.start("clerk", {"cents": 9_000})).result(PATIENCE_S)
        else:
            home = office.folder / "before"
            async with Worker(office.log, [Clerk], home=home, clock=office.clock):
                await office.client.generations(agent_type="clerk")
        await office.client.grow("clerk", 9)
        await stack.enter_async_context(office.worker())
        run = await office.client.start("clerk", {"cents": 10})
        await eventually(lambda: office.case_ended(1 + is_there))
        assert (await answered(run))[0] == "open"
        assert [one[0] for one in await office.asked()][-1] == "cleo"
        clerk = office.log.topology.journal("clerk", 2)
        assert len(await stored(office.log, clerk, types=("approval.requested",))) == 1


async def test_about_a_question_that_is_answered_nobody_is_asked(office: Office) -> None:
    run = await office.client.start("clerk", {"cents": 9_000})
    async with Worker(office.log, [Clerk], home=office.folder / "clerk", clock=office.clock):
        await eventually(run.approvals)
        await run.approve(by="ada")
        assert (await run.result(PATIENCE_S))["answer"] is True
    async with office.worker():
        await eventually(office.case_ended)
    assert await answered(run) == ("answered", True, "ada")
    assert await office.asked() == []


@pytest.mark.parametrize(
    ("claim", "people"),
    [
        ({"cents": 10}, ["cleo"]),
        ({"cents": 9_000, "approvers": ["bob", "approver"]}, ["bob"]),
        ({"cents": 10, "approvers": ["zoe"]}, ["zoe"]),
    ],
)
async def test_the_first_rule_that_fits_says_who_and_who_may_not_answer_is_not_asked(
    office: Office, claim: dict[str, Any], people: list[str]
) -> None:
    async with office.worker():
        run = await office.client.start("clerk", claim)
        await eventually(office.case_ended)
    assert list(dict.fromkeys(one[0] for one in await office.asked())) == people
    status = "answered" if claim["cents"] > 5_000 else "open"
    assert (await answered(run))[0] == status


async def test_what_the_approver_may_not_deny_stays_open_and_it_says_so(office: Office) -> None:
    async with office.worker():
        run = await office.client.start("clerk", {"cents": 9_000, "approvers": ["bob"]})
        await eventually(office.case_ended)
    assert (await answered(run))[0] == "open"
    (decided,) = await stored(office.log, office.log.topology.journal(CASE), types=("approver.decided",))
    assert decided.envelope.payload["denied"] is False
    assert "approver may not answer" in decided.envelope.payload["reason"]


async def test_a_question_for_which_there_is_no_rule_is_left_to_people(office: Office) -> None:
    async with office.worker():
        run = await office.client.start("clerk", {"cents": 9_000, "tool": "delete"})
        other = await office.client.start("clerk", {"cents": 10})
        await eventually(office.case_ended)
    assert len(await office.client.list_runs(agent_type=CASE)) == 1
    assert [(await answered(one))[0] for one in (run, other)] == ["open", "open"]
