"""How tasks end: by their answer, an error, a deadline, or a request to cancel that follows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import CapabilityError, DeadlineExceededError
from noesium_stream.event import AgentRef
from noesium_stream.event.standard import TaskCompleted, TaskRequested
from noesium_stream.event.trust.policy import Policy
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.delegating import (
    State,
    caller,
    events_of,
    letters,
    provider,
    replayed,
    runs_of,
    send,
    types,
    working,
)
from tests.support.reading import eventually, stored

CAPABILITY = "sum.up"
AGENT = AgentRef("anybody", "anybody")


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


def asking(**options: Any) -> Any:
    async def node(state: State) -> dict[str, Any]:
        try:
            value = await current_step().request_task(CAPABILITY, {"n": state["n"]}, **options)
        except (CapabilityError, DeadlineExceededError) as error:
            return {"value": f"{type(error).__name__}: {error.message}"}
        return {"value": value["value"]}

    return caller(node, "boss")


async def double(state: State) -> dict[str, Any]:
    return {"value": 2 * state["n"]}


async def sleep(state: State) -> dict[str, Any]:
    await current_step().sleep(3600)
    return {"value": 1}


def taker(agent_type: str, work: Any = double, **attributes: Any) -> Any:
    return provider(agent_type, work, tasks=(CAPABILITY,), **attributes)


async def status(client: Client, agent_type: str) -> list[str]:
    return [info.status for info in await runs_of(client, agent_type)]


async def holds_all(log: EventLog) -> None:
    """Return when one subscriber has all partitions of the task topic."""

    async def is_alone() -> bool:
        members = await log.members(log.topology.takers(CAPABILITY))
        return [len(member.partitions) for member in members] == [log.topology.partitions]

    await eventually(is_alone)


async def requested(run: Run) -> dict[str, Any]:
    """The task of a run, once it has requested it."""

    async def is_requested() -> bool:
        return bool(await events_of(run, "task.requested"))

    await eventually(is_requested)
    return (await events_of(run, "task.requested"))[0].payload


async def sleeps(client: Client, agent_type: str) -> None:
    """Return when an agent's run sleeps."""

    async def is_asleep() -> bool:
        return [wait.kind for info in await runs_of(client, agent_type) for wait in info.waits_for] == [
            "timer"
        ]

    await eventually(is_asleep)


async def test_a_run_with_tasks_is_replayed_and_says_what_it_did(log: EventLog, tmp_path: Path) -> None:
    boss = asking()
    async with working(log, tmp_path, boss, taker("alpha")), Client(log) as client:
        run = await client.start("boss", {"n": 4})
        assert await run.result() == {"value": 8}
        assert await replayed(run, boss, log) == ""
        asked, answered = await events_of(run, "task.requested", "task.completed")
        assert asked.payload["task_id"] == asked.payload["run_id"] == answered.payload["task_id"]
        assert asked.payload["path"] == ["boss"]
        (child,) = await runs_of(client, "alpha")
        assert (child.run_id, child.parent_run_id, child.status) == (
            asked.payload["task_id"],
            run.id,
            "completed",
        )
        assert len(await runs_of(client, "boss")) == 1  # its own record of the task is no run of its own


async def test_a_task_that_nobody_takes_is_waited_for_by_its_capability(
    log: EventLog, tmp_path: Path
) -> None:
    async with working(log, tmp_path, asking()), Client(log) as client:
        task = await requested(await client.start("boss", {"n": 4}))
        ((wait,),) = [info.waits_for for info in await runs_of(client, "boss")]
        assert wait.shown == f"a worker of sum.up to do the task {task['task_id']}"
        async with working(log, tmp_path, taker("alpha")):
            await eventually_ended(client, "boss", "completed")


async def eventually_ended(client: Client, agent_type: str, how: str) -> None:
    async def has_ended() -> bool:
        return await status(client, agent_type) == [how]

    await eventually(has_ended)


async def test_a_task_without_a_taker_by_its_deadline_is_not_done_later(
    log: EventLog, tmp_path: Path
) -> None:
    done = Counter[int]()

    async def count(state: State) -> dict[str, Any]:
        done[state["n"]] += 1
        return {"value": 0}

    boss = asking(deadline=0.05)
    async with working(log, tmp_path, boss), Client(log) as client:
        run = await client.start("boss", {"n": 4})
        assert "DeadlineExceededError: sum.up was not answered by" in (await run.result())["value"]
        assert await replayed(run, boss, log) == ""
        topic = log.topology.task(CAPABILITY)
        kinds = [record.event_type for record in await stored(log, topic)]
        assert kinds == ["task.requested", "run.cancel.requested"]
        async with working(log, tmp_path, taker("alpha", count)):

            async def has_ended() -> bool:
                return await status(client, "alpha") in (["failed"], ["cancelled"])

            await eventually(has_ended)
        assert not done
        assert types(await events_of(run, "task.completed")) == []


async def test_a_task_that_fails_or_is_refused_says_why(log: EventLog, tmp_path: Path) -> None:
    async def fail(state: State) -> dict[str, Any]:
        raise ValueError("no such number")

    async with working(log, tmp_path, asking(), taker("alpha", fail)), Client(log) as client:
        run = await client.start("boss", {"n": 4})
        assert (await run.result())["value"] == "CapabilityError: sum.up failed at alpha: no such number"
        run = await client.start("boss", {"n": "four"})
        assert "CapabilityInputError: sum.up failed at alpha" in (await run.result())["value"]


async def test_a_cancelled_run_cancels_its_task_wherever_that_has_gone(log: EventLog, tmp_path: Path) -> None:
    async with working(log, tmp_path / "boss", asking()), Client(log) as client:
        async with working(log, tmp_path / "a", taker("alpha", sleep)):
            run = await client.start("boss", {"n": 4})
            await sleeps(client, "alpha")
        async with working(log, tmp_path / "b", taker("beta")):
            await holds_all(log)
            await run.cancel()

            async def is_told() -> bool:
                inbox = await stored(log, log.topology.inbox("alpha"), types=("run.cancel.requested",))
                return bool(inbox)

            await eventually(is_told)  # by another agent type, which has the partition now
        async with working(log, tmp_path / "a", taker("alpha", sleep)):
            await eventually_ended(client, "alpha", "cancelled")
        assert await runs_of(client, "beta") == []


async def test_only_the_first_answer_counts_and_wrong_ones_are_dead_letters(
    log: EventLog, tmp_path: Path
) -> None:
    async with working(log, tmp_path, asking()), Client(log) as client:
        run = await client.start("boss", {"n": 4})
        task = (await requested(run))["task_id"]
        right: dict[str, Any] = {
            "task_id": task,
            "run_id": task,
            "call_id": task,
            "caller_run_id": run.id,
            "capability_id": CAPABILITY,
            "provider_agent_id": "alpha",
        }
        for wrong in ({"provider_agent_id": "beta"}, {"task_id": "other"}, {"call_id": None}):
            await send(log, TaskCompleted(**{**right, **wrong}), "alpha", run.id, "boss")
        for value in (1, 2):
            answer = TaskCompleted(**right, result={"value": value})
            await send(log, answer, "alpha", run.id, "boss")
        assert await run.result() == {"value": 1}
        reasons = [letter.payload["failure_reason"] for letter in await letters(log)]
        assert len(reasons) == 3
        assert any("who sends it" in reason for reason in reasons)


async def test_with_a_policy_only_who_may_offer_something_answers_a_task(
    log: EventLog, tmp_path: Path
) -> None:
    rules = [{"who": ["*"], "may": ["start"]}, {"who": ["agent:alpha"], "may": ["register"]}]
    policy = Policy.model_validate({"allow": rules})
    async with working(log, tmp_path / "boss", asking(), policy=policy), Client(log) as client:
        run = await client.start("boss", {"n": 4})
        async with working(log, tmp_path / "b", taker("beta")):

            async def is_refused() -> bool:
                return bool(await letters(log))

            await eventually(is_refused)
        (letter,) = await letters(log)
        assert "may not register capabilities" in letter.payload["failure_reason"]
        assert not await events_of(run, "task.completed")
        async with working(log, tmp_path / "a", taker("alpha")):
            again = await client.start("boss", {"n": 5})
            assert await again.result() == {"value": 10}


async def test_what_is_no_task_is_a_dead_letter_and_stops_nothing(log: EventLog, tmp_path: Path) -> None:
    topic = log.topology.task(CAPABILITY)
    await log.ensure_topics([log.topology.spec(topic)])
    wrong = [
        TaskCompleted(task_id="t").to_envelope(AGENT, None, partition_key="t"),
        TaskRequested(task_id="t", capability_id="other", run_id="t").to_envelope(
            AGENT, None, partition_key="t"
        ),
        TaskRequested(task_id="t", capability_id=CAPABILITY, run_id="u").to_envelope(
            AGENT, None, partition_key="t"
        ),
    ]
    await log.append(wrong, topic=topic)
    async with working(log, tmp_path, asking(), taker("alpha")), Client(log) as client:
        run = await client.start("boss", {"n": 4})
        assert await run.result() == {"value": 8}

        async def are_letters() -> bool:
            return len(await letters(log)) == len(wrong)

        await eventually(are_letters)
        assert {letter.payload["topic"] for letter in await letters(log)} == {topic}
        assert len(await runs_of(client, "alpha")) == 1
