"""Where runs begin: a request reads what is new, and its own run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from a2a.types import TaskState

from noesium_stream.a2a.journals import Tasks, task_id_of
from noesium_stream.a2a.tasks import METADATA
from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import RunRequested
from noesium_stream.log import EventLog, open_log
from noesium_stream.serving import runs as serving_runs
from noesium_stream.serving.places import Places
from noesium_stream.worker import Worker
from tests.support.reading import eventually
from tests.support.sample_agents import Echo


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    opened = await open_log("memory://?partitions=1")
    yield opened
    await opened.close()


async def test_a_run_begins_at_its_first_record_and_an_unknown_one_at_the_end(
    log: EventLog, tmp_path: Path
) -> None:
    places = Places(log)
    async with Worker(log, [Echo], home=tmp_path), Client(log) as client:
        runs = [await client.start("echo", {"text": f"{number}"}) for number in range(3)]
        await asyncio.gather(*(run.result() for run in runs))
        found = [await places.find("echo", run.id) for run in runs]
        unknown = await places.find("echo", "00000000-0000-0000-0000-000000000000")
    journal = log.topology.journal("echo")
    for run, place in zip(runs, found, strict=True):
        first, *_ = [record.offset async for record in run.records(follow=False)]
        assert place.since is not None
        assert place.since.offsets == {0: first}
        assert place.command is None
    assert unknown.since is not None
    assert unknown.since.offsets[0] <= (await log.end(journal))[0]
    assert unknown.since.offsets[0] > max(dict(place.since.offsets)[0] for place in found if place.since)


async def test_a_run_that_was_forgotten_is_looked_for_in_the_whole_journal(
    log: EventLog, tmp_path: Path
) -> None:
    places = Places(log, most=1)
    async with Worker(log, [Echo], home=tmp_path), Client(log) as client:
        runs = [await client.start("echo", {"text": f"{number}"}) for number in range(2)]
        await asyncio.gather(*(run.result() for run in runs))
        found = [(await places.find("echo", run.id)).since for run in runs]
    assert sorted(since is None for since in found) == [False, True]


async def test_a_command_that_its_owner_refuses_is_a_rejected_task(
    log: EventLog, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(serving_runs, "LOOK_S", 0)
    clock = SystemClock()
    run_id = clock.uuid7()
    asked = RunRequested(run_id=run_id, agent_type="echo", input={"text": "x"}, agent_version="none")
    by = AgentRef("ann", "client", "local", clock.uuid7())
    said = {"to": "echo", METADATA: {"message_id": "m1"}}
    async with Client(log, agent_id="ann") as client:
        tasks = Tasks(log, (), lambda name: client, clock)
        await log.ensure_topics([log.topology.spec(log.topology.inbox("echo"))])
        await log.append([root_event(asked, by, clock, partition_key=run_id, metadata=said)])
        task_id = task_id_of("echo", run_id)

        async def state() -> TaskState:
            _, fold = await tasks.find(task_id, "ann")
            return fold.state

        assert await state() == TaskState.TASK_STATE_SUBMITTED
        async with Worker(log, [Echo], home=tmp_path):
            await eventually(lambda: _is(state, TaskState.TASK_STATE_REJECTED))
            _, fold = await tasks.find(task_id, "ann")
    assert "not a version range" in fold.text


async def _is(state: Any, wanted: TaskState) -> bool:
    return bool(await state() == wanted)
