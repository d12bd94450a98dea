"""The synchronous wrapper does what the client does."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from noesium_stream.client.sync import SyncClient
from noesium_stream.errors import LogUnavailableError, RunFailedError, RunNotFoundError
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S
from tests.support.sample_agents import Echo
from tests.support.tree_agents import AGENTS, calling
from tests.support.undo import Traveller, new_world


@pytest.fixture
def served(tmp_path: Path) -> object:
    """URL of a SQLite log on which another thread's worker serves `Echo`."""
    url = f"sqlite:///{tmp_path}/log.db"
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        log = await open_log(url)
        async with Worker(log, [Echo, Traveller, *AGENTS], home=tmp_path):
            ready.set()
            await asyncio.to_thread(stop.wait)
        await log.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield url
    stop.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_start_events_result_and_list_work_without_an_event_loop(served: str) -> None:
    with SyncClient(served) as client:
        run = client.start("echo", {"text": "hello"}, idempotency_key="one")
        assert run.result(timeout=PATIENCE_S) == {"reply": "HELLO"}
        types = [event.event_type for event in run.events()]
        assert types[0] == "run.requested"
        assert types[-1] == "run.completed"
        assert run.info().status == "completed"
        assert [info.run_id for info in client.list_runs(agent_type="echo")] == [run.id]
        again = client.get_run(run.id[:12])
        assert again.result(timeout=PATIENCE_S) == {"reply": "HELLO"}


def test_an_effect_is_decided_about_without_an_event_loop(served: str) -> None:
    new_world(fails={"cancel hotel": 1})
    with SyncClient(served) as client:
        run = client.start("traveller", {"ending": "fail"})
        failed = next(event for event in run.events() if event.payload.get("awaits_decision"))
        (waiting,) = client.unresolved_effects()
        assert waiting.effect_id == failed.payload["effect_id"]
        assert list(run.unresolved_effects()) == [waiting]
        sent = run.resolve_effect(waiting.effect_id[:8], "fail", reason="too late", by="Ada")
        assert (sent.decision, sent.reason, sent.outcome_id) == ("fail", "too late", failed.event_id)
        with pytest.raises(RunFailedError, match="no taxi"):
            run.result(timeout=PATIENCE_S)
        assert client.unresolved_effects() == []


def test_a_tree_is_answered_and_cancelled_without_an_event_loop(served: str) -> None:
    with SyncClient(served) as client:
        run = client.start("root", calling("leaf", {"question": "one?"}, {"question": "two?"}))
        while len(run.questions()) < 2:
            time.sleep(0.01)
        first, second = run.questions()
        assert run.approve(first.approval_id, by="ann").run_id == first.run_id
        while len(run.questions()) == 2:
            time.sleep(0.01)
        assert run.question().approval_id == second.approval_id
        tree = run.cancel_tree("enough")
        assert [one.status for one in tree.runs if one.run_id == second.run_id] == ["cancelled"]
        assert run.tree_end(timeout=0) == tree


def test_errors_are_the_client_s(served: str) -> None:
    with SyncClient(served) as client:
        with pytest.raises(RunNotFoundError, match="no run nothing"):
            client.get_run("nothing")
        with pytest.raises(RunFailedError, match="told to fail"):
            client.start("echo", {"text": "fail"}).result(timeout=PATIENCE_S)


def test_a_log_that_cannot_be_opened_leaves_no_thread_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    before = set(threading.enumerate())
    with pytest.raises(LogUnavailableError), SyncClient(f"sqlite:///{tmp_path}/folder"):
        raise AssertionError("there is nothing to open")
    assert set(threading.enumerate()) <= before
