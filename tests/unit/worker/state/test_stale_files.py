"""States of topics that were deleted or made anew are removed by who starts: no others, none that is held."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.log.port import TopicPartition
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.stored.folder import open_fold
from noesium_stream.state_file.claim import locked
from noesium_stream.worker import Worker
from noesium_stream.worker.state.stale_files import GONE_S, mark, sweep_handler, sweep_runs
from tests.support.measured import Types
from tests.support.reading import PATIENCE_S
from tests.support.sample_agents import Echo


def state_of(folder: Path, journal: str, url: str | None = "here", name: str = "0.db") -> Path:
    path = folder / journal / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal", ".lock"):
        Path(f"{path}{suffix}").write_bytes(b"state")
    if url is not None:
        mark(path.parent, url)
    return path


def test_only_states_of_this_logs_journals_that_are_gone_and_that_nobody_holds_are_removed(
    tmp_path: Path,
) -> None:
    alive, gone = state_of(tmp_path, "a%2Flive"), state_of(tmp_path, "gone")
    elsewhere, unknown = state_of(tmp_path, "other", "elsewhere"), state_of(tmp_path, "old", None)
    held, beside = state_of(tmp_path, "held"), state_of(tmp_path, "held", name="0~2.db")
    with ExitStack() as stack:
        stack.enter_context(locked(held))
        assert sweep_runs(tmp_path, "here", {"a/live"}) == 2
        assert not gone.parent.exists()
        assert not beside.exists()
        assert all(path.exists() for path in (alive, elsewhere, unknown, held))
    assert sweep_runs(tmp_path, "here", {"a/live"}) == 1
    assert not held.parent.exists()
    assert sweep_runs(tmp_path / "nothing", "here", set()) == 0


async def test_a_worker_that_starts_removes_what_is_left_of_a_journal_that_was_made_anew(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    url = f"sqlite:///{tmp_path / 'log.db'}?partitions=1"
    home = tmp_path / "home"

    async def work() -> None:
        log = await open_log(url)
        worker = Worker(log, [Echo], home=home, progress=said.append)
        async with asyncio.timeout(PATIENCE_S), Client(log) as client, worker:
            run = await client.start("echo", {"text": "hello"})
            assert await run.result() == {"reply": "HELLO"}
        await log.close()

    await work()
    [before] = home.glob("worker/echo/*")
    await work()
    assert [*home.glob("worker/echo/*")] == [before], "it is used again"
    for path in tmp_path.glob("log.db*"):
        path.unlink()
    await work()
    [after] = home.glob("worker/echo/*")
    assert after != before
    assert "echo: 1 states of topics that are gone were removed" in said


async def test_a_handlers_state_goes_with_its_topic_and_waits_a_while_where_that_is_only_not_seen(
    tmp_path: Path,
) -> None:
    log = await open_log("memory://?partitions=1")
    place = TopicPartition("noesium.events.sales", 0)

    def written() -> Path:
        projection = Types()
        fold = open_fold(tmp_path, projection, StateCodec(projection), log, place, "1", lambda line: None)
        fold.file.close()
        return fold.file.path

    path = written()
    now_ms = round(path.stat().st_mtime * 1000)
    assert sweep_handler(tmp_path, {place.topic: "1"}, now_ms) == 0
    assert sweep_handler(tmp_path, {}, now_ms) == 0, "who may not see a topic any more loses nothing"
    assert sweep_handler(tmp_path, {}, round(now_ms + (GONE_S + 60) * 1000)) == 1
    assert not path.exists()
    path = written()
    with locked(path):
        assert sweep_handler(tmp_path, {place.topic: "2"}, now_ms) == 0
    assert sweep_handler(tmp_path, {place.topic: "2"}, now_ms) == 1
    assert not os.path.exists(f"{path}-wal")
    await log.close()
