"""Runs from command to outcome on `memory://`: once, in order, with what was delegated."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client
from noesium_stream.errors import LogClosedError, RunCancelledError, RunFailedError, RunTimeoutError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.standard import CapabilityCompleted
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker import worker as worker_module
from tests.support.reading import PATIENCE_S, expired
from tests.support.sample_agents import Asker, Echo, NoteTaken


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    Asker.bodies.clear()
    Echo.bodies.clear()
    log = await open_log("memory://")
    yield log
    await log.close()


def worker(log: EventLog, home: Path) -> Worker:
    return Worker(log, [Echo, Asker], home=home)


async def test_a_run_delegates_and_returns_its_result(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start("asker", {"words": ["a", "b"]})
        result = await run.result(timeout=PATIENCE_S)
    assert result["replies"] == ["A", "B"]
    assert result["effect"] == "done"
    types = [event.event_type async for event in run.events(follow=False)]
    assert types[:2] == ["run.requested", "run.started"]
    assert types[-1] == "run.completed"
    assert types.count("capability.invoked") == types.count("capability.completed") == 2
    assert types.index("note.taken") < types.index("capability.invoked")


async def test_every_step_is_committed_with_its_events_in_one_commit(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start("asker", {"words": []})
        await run.result(timeout=PATIENCE_S)
    commits = {}
    async for record in run.records(follow=False):
        commits[record.event_type] = (record.header("noesium_commit") or b"").split(b":")[0]
    assert commits["note.taken"]
    records = [r async for r in run.records(follow=False)]
    note = next(r for r in records if r.event_type == "note.taken")
    after = records[records.index(note) + 1]
    assert after.event_type == "kernel.node.completed"
    assert (after.header("noesium_commit") or b"").split(b":")[0] == commits["note.taken"]


async def test_a_command_sent_twice_with_one_key_is_one_run(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path), Client(log) as client:
        first = await client.start("echo", {"text": "x"}, idempotency_key="mail-1")
        second = await client.start("echo", {"text": "x"}, idempotency_key="mail-1")
        assert first.id == second.id
        assert (
            await first.result(timeout=PATIENCE_S)
            == await second.result(timeout=PATIENCE_S)
            == {"reply": "X"}
        )
        third = await client.start("echo", {"text": "x"}, idempotency_key="mail-1")
        assert await third.result(timeout=PATIENCE_S) == {"reply": "X"}
    assert Echo.bodies["echo x"] == 1


async def test_a_failure_is_the_run_s_outcome_and_the_caller_s_error(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start("asker", {"words": ["fail"]})
        with pytest.raises(RunFailedError, match=r"text\.echo failed at echo: told to fail"):
            await run.result(timeout=PATIENCE_S)
        infos = await client.list_runs()
    assert {(info.agent_type, info.status) for info in infos} == {("asker", "failed"), ("echo", "failed")}
    child = next(info for info in infos if info.agent_type == "echo")
    assert child.parent_run_id == run.id


async def test_a_run_goes_on_with_the_next_worker_and_repeats_nothing(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with Worker(log, [Asker], home=tmp_path):
            # The provider is known, but nobody works for it: the run waits for its answer.
            async with Worker(log, [Echo], home=tmp_path):
                pass
            run = await client.start("asker", {"words": ["a"]})
            async for event in run.events():
                if event.event_type == "capability.invoked":
                    break
        assert Asker.bodies == {"plan": 1, "ask": 1}
        async with worker(log, tmp_path):
            assert (await run.result(timeout=PATIENCE_S))["replies"] == ["A"]
    assert Asker.bodies == {"plan": 1, "ask": 2, "close": 1, "outside": 1}
    assert Echo.bodies["echo a"] == 1
    types = [event.event_type async for event in run.events(follow=False)]
    assert types.count("capability.invoked") == 1
    assert types.count("kernel.node.entered") == types.count("kernel.node.completed") == 3


async def test_cancel_ends_a_run_and_what_it_delegated(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with Worker(log, [Echo], home=tmp_path):
            pass
        async with Worker(log, [Asker], home=tmp_path):
            run = await client.start("asker", {"words": ["a"]})
            async for event in run.events():
                if event.event_type == "capability.invoked":
                    await run.cancel("not needed")
            with pytest.raises(RunCancelledError, match="not needed"):
                await run.result(timeout=PATIENCE_S)
        async with worker(log, tmp_path):
            child = next(info for info in await client.list_runs() if info.agent_type == "echo")
            handle = await client.get_run(child.run_id)
            with pytest.raises((RunCancelledError, RunFailedError)):
                await handle.result(timeout=PATIENCE_S)


async def test_an_expired_command_is_not_executed(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        run = await client.start("echo", {"text": "late"}, ttl=0.001)
        await expired()
        async with worker(log, tmp_path):
            with pytest.raises(RunFailedError, match="ttl 1 ms"):
                await run.result(timeout=PATIENCE_S)
    assert Echo.bodies["echo late"] == 0


async def test_waiting_for_a_result_ends_when_the_time_is_over(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        run = await client.start("echo", {"text": "x"})
        with pytest.raises(RunTimeoutError, match="no outcome after"):
            await run.result(timeout=0.05)
        assert (await run.info()).status == "requested"


async def test_a_fold_over_all_journals_sees_each_event_once(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start("asker", {"words": ["a"]})
        await run.result(timeout=PATIENCE_S)
    ids: Counter[str] = Counter()
    received: Counter[str] = Counter()
    for agent_type in ("asker", "echo"):
        journal = log.topology.journal(agent_type)
        async for record in log.read(journal, {}, until=await log.end(journal)):
            if record.header("noesium_source") is not None:
                received[record.event_type] += 1
            if record.header("noesium_origin") is None:
                ids[record.envelope.event_id] += 1
    assert set(ids.values()) == {1}
    # The command of a program without a journal is seen in the copy; what agents sent, in the original.
    assert received == {"run.requested": 1, "capability.invoked": 1, "capability.completed": 1}


async def test_what_is_no_command_becomes_a_dead_letter_and_the_rest_goes_on(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        stray = await client.start("echo", {"text": "x"}, idempotency_key="k")
        to_echo = {"to": "echo"}
        note = NoteTaken(text="lost").to_envelope(
            AgentRef("someone", "someone"),
            TraceContext("0" * 32, "0" * 16),
            partition_key=stray.id,
            metadata=to_echo,
        )
        log.catalogue.register(NoteTaken)
        await log.append([note])
        async with worker(log, tmp_path):
            assert await stray.result(timeout=PATIENCE_S) == {"reply": "X"}
            second = await client.start("echo", {"text": "y"})
            assert await second.result(timeout=PATIENCE_S) == {"reply": "Y"}
        letters = [
            r.envelope async for r in log.read(log.topology.dlq, {}, until=await log.end(log.topology.dlq))
        ]
    assert [letter.event_type for letter in letters] == ["system.event.validation_failed"]
    assert letters[0].payload["topic"] == log.topology.inbox("echo")
    assert (
        "run_id" in letters[0].payload["failure_reason"] or "run is" in letters[0].payload["failure_reason"]
    )


async def test_an_answer_counts_only_from_the_provider_that_was_chosen(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with Worker(log, [Echo], home=tmp_path):
            pass
        async with Worker(log, [Asker], home=tmp_path):
            run = await client.start("asker", {"words": ["a"]})
            async for event in run.events():
                if event.event_type == "capability.invoked":
                    break
            forged = CapabilityCompleted(
                run_id=event.payload["run_id"],
                call_id=event.payload["reply_to"]["call_id"],
                caller_run_id=run.id,
                capability_id="text.echo",
                provider_agent_id="echo",
                output={"reply": "forged"},
            ).to_envelope(
                AgentRef("mallory", "mallory"), event.trace, partition_key=run.id, metadata={"to": "asker"}
            )
            await log.append([forged])
            async with Worker(log, [Echo], home=tmp_path):
                assert (await run.result(timeout=PATIENCE_S))["replies"] == ["A"]


async def test_a_worker_opens_the_log_of_a_url_and_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, opened = f"sqlite:///{tmp_path}/log.db", []

    async def noted(*args: Any, **kwargs: Any) -> EventLog:
        opened.append(await open_log(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(worker_module, "open_log", noted)
    async with Worker(url, [Echo], home=tmp_path), Client(url) as client:
        run = await client.start("echo", {"text": "a"})
        assert (await run.result(timeout=PATIENCE_S)) is not None
    [log] = opened
    with pytest.raises(LogClosedError):
        await log.topics()
