"""A question of a grandchild is found at its root, and answered there or here, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream.cli.commands.runs.show import collect
from noesium_stream.cli.drawing import draw
from noesium_stream.client import Approval, Client, Run
from noesium_stream.client.views.approvals import PathStep
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ApprovalClosedError, ApprovalError, RunCancelledError, RunEndedError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import CapabilityInvoked, ReplyTo
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually
from tests.support.tree_agents import AGENTS, calling
from tests.support.trees import children


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=2")
    async with asyncio.timeout(PATIENCE_S):
        yield log
    await log.close()


async def asked(run: Run, count: int = 1) -> list[Approval]:
    """The open questions of its tree, as soon as there are so many."""

    async def there() -> bool:
        return len([one for one in await run.questions() if one.status == "open"]) == count

    await eventually(there)
    return await run.questions()


async def test_a_question_of_a_grandchild_has_its_path_and_is_answered_at_the_root(
    log: EventLog, tmp_path: Path
) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("middle", calling("leaf", {"question": "pay?"})))
        [question] = await asked(run)
        [child] = await children(log, run)
        [grandchild] = await children(log, child)
        path = tuple(PathStep(one.agent_type, one.id) for one in (run, child, grandchild))
        assert question.path == path
        for listed in (await client.approvals(), await client.approvals(agent_type="leaf")):
            assert [(one.approval_id, one.path) for one in listed] == [(question.approval_id, path)]
        answered = await run.approve(by="ann")
        assert (answered.run_id, answered.answered_by) == (grandchild.id, "ann")
        approved = {"answers": [{"approved": True, "by": "ann"}]}
        assert await run.result() == {"answers": [{"answers": [approved]}]}


async def test_the_tree_s_root_names_what_a_grandchild_waits_for(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("middle", calling("leaf", {"question": "pay?"})))
        [question] = await asked(run)
        lines = draw(causal_tree(run.id, *await collect(run)))
        assert f'   leaf {question.run_id[:13]} waits for anyone to answer "pay?"' in lines
        await run.approve()


async def test_of_two_people_who_answer_here_and_there_at_once_one_counts(
    log: EventLog, tmp_path: Path
) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("middle", calling("leaf", {"question": "pay?"})))
        [question] = await asked(run)
        here, there = client.run_handle("leaf", question.run_id), run
        answers = await asyncio.gather(here.approve(by="ann"), there.reject(by="bob"), return_exceptions=True)
        told = [one for one in answers if isinstance(one, ApprovalError)]
        [counted] = [one for one in answers if isinstance(one, Approval)]
        assert len(told) == 1
        assert isinstance(told[0], ApprovalClosedError) or "asks nothing now" in told[0].message
        result = {"approved": counted.answered_by == "ann", "by": counted.answered_by}
        assert await run.result() == {"answers": [{"answers": [{"answers": [result]}]}]}


async def test_an_answer_that_lies_in_the_inbox_closes_the_question_for_who_comes_to_the_root(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        async with Worker(log, list(AGENTS), home=tmp_path):
            run = await client.start("root", calling("leaf", {"question": "pay?"}))
            await asked(run)
        await run.approve(by="ann")
        with pytest.raises(ApprovalClosedError, match="was approved by ann"):
            await run.reject(by="bob")
        assert [one.status for one in await run.questions()] == ["sent"]
        async with Worker(log, list(AGENTS), home=tmp_path):
            answers = (await run.result())["answers"]
    assert answers == [{"answers": [{"approved": True, "by": "ann"}]}]


async def test_of_several_questions_below_a_root_one_has_to_be_named(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf", {"question": "one?"}, {"question": "two?"}))
        first, second = await asked(run, 2)
        with pytest.raises(ApprovalError, match="2 questions are open in runs below") as refused:
            await run.approve()
        assert refused.value.hint is not None
        assert f"{second.approval_id}  {second.shown}, run {second.run_id}" in refused.value.hint
        assert (await run.reject(second.approval_id[:12])).run_id == second.run_id
        assert (await run.approve()).run_id == first.run_id
        await run.result()
        with pytest.raises(RunEndedError):
            await run.approve()


async def test_who_names_a_run_above_as_its_caller_gets_no_question_below_it(
    log: EventLog, tmp_path: Path
) -> None:
    """Anybody may write an inbox: a command that names a caller is not that caller's call."""
    clock = SystemClock()
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf"))
        forged_id = clock.uuid7()
        forged = CapabilityInvoked(
            run_id=forged_id,
            capability_id="leaf.work",
            version="1.0.0",
            caller_agent_id="root",
            caller_run_id=run.id,
            target_agent_id="leaf",
            target_agent_type="leaf",
            registry_offset=0,
            input={"question": "give me all?"},
            reply_to=ReplyTo(agent_type="root", run_id=run.id, call_id=forged_id),
        )
        envelope = root_event(
            forged,
            AgentRef("mallory", "client", "local", clock.uuid7()),
            clock,
            correlation_id=run.id,
            partition_key=forged_id,
            metadata={"to": "leaf"},
        )
        await log.append([envelope])
        await eventually(client.approvals)
        [question] = await client.approvals()
        assert question.path == (PathStep("leaf", forged_id),)
        assert await run.questions() == []
        with pytest.raises(ApprovalError, match="asks nothing now"):
            await run.approve()
        for one in (run, client.run_handle("leaf", forged_id)):
            await one.cancel()
            with pytest.raises(RunCancelledError):
                await one.result()


async def test_a_question_of_a_run_that_nobody_has_called_has_no_path(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("leaf", {"question": "alone?"})
        [question] = await asked(run)
        assert question.path == ()
        assert [one.path for one in await client.approvals()] == [()]
        await run.approve()
