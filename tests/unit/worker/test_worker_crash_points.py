"""Every commit of a run fails once, before or after it reached the log: nothing is lost or done twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.errors import CommitUnknownError, FencedError, LogUnavailableError
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.failing import FailingLog
from tests.support.reading import PATIENCE_S
from tests.support.sample_agents import Asker, Echo

COMMITS = 18
"""More than the run of `Asker` below needs, acquisitions of the partitions included."""


async def journal_of(client: Client, run_id: str) -> list[tuple[str, str, int]]:
    """(event type, idempotency key or event id, number) of all a run's records, in order."""
    run = await client.get_run(run_id)
    journal = client.log.topology.journal(run.agent_type)
    found = []
    async for record in client.log.read(journal, {}, until=await client.log.end(journal)):
        if record.key == run_id:
            envelope = record.unchecked
            number = int(record.header("noesium_seq") or b"-1")
            found.append((record.event_type, envelope.idempotency_key or envelope.event_id, number))
    return found


@pytest.mark.parametrize("at", range(1, COMMITS + 1))
@pytest.mark.parametrize(
    ("error", "reaches_log"),
    [
        (CommitUnknownError("told to"), True),
        (CommitUnknownError("told to"), False),
        (FencedError("told to"), False),
        (LogUnavailableError("told to"), False),
    ],
    ids=["unknown-but-there", "unknown-and-lost", "fenced", "absent"],
)
async def test_a_run_survives_a_commit_that_fails(
    tmp_path: Path, at: int, error: Exception, reaches_log: bool
) -> None:
    Asker.bodies.clear()
    Echo.bodies.clear()
    inner = await open_log("memory://")
    failing = FailingLog(inner, lambda count, _: count == at, error, reaches_log=reaches_log)
    log: EventLog = failing  # type: ignore[assignment]
    async with Worker(log, [Echo, Asker], home=tmp_path), Client(log) as client:
        run = await client.start("asker", {"words": ["a", "b"]})
        result = await run.result(timeout=PATIENCE_S)
        assert result == {"words": ["a", "b"], "replies": ["A", "B"], "effect": "done"}
        for info in await client.list_runs():
            records = await journal_of(client, info.run_id)
            assert [number for _, _, number in records] == list(range(len(records)))
            assert max(Counter(key for _, key, _ in records).values()) == 1
            types = Counter(event_type for event_type, _, _ in records)
            assert types["run.started"] == types["run.completed"] == 1
    # A body runs again only if its `kernel.node.completed` did not reach the log.
    assert Echo.bodies["echo a"] <= 2
    assert Asker.bodies["outside"] <= 2
    await inner.close()


async def test_the_number_of_commits_covers_the_whole_run(tmp_path: Path) -> None:
    inner = await open_log("memory://")
    counting = FailingLog(inner, lambda *_: False, RuntimeError("never"), reaches_log=False)
    log: EventLog = counting  # type: ignore[assignment]
    async with Worker(log, [Echo, Asker], home=tmp_path), Client(log) as client:
        await (await client.start("asker", {"words": ["a", "b"]})).result(timeout=PATIENCE_S)
    assert counting.commits < COMMITS
    await inner.close()
