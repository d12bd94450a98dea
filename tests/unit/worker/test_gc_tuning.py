"""The garbage collector pauses while a journal is read back, and goes on however that ends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.agent import BaseAgent, BaseHandler
from noesium_stream.client import Client
from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.log import open_log
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.prepare import Prepared
from noesium_stream.worker import Worker
from noesium_stream.worker.gc_tuning import (
    NEW_OBJECTS,
    OF_HANDLERS,
    OLDER,
    collect_less_often,
    collector_paused,
)
from noesium_stream.worker.process_settings import tune_process
from noesium_stream.worker.state.known_runs import Bounds, OpenRun
from noesium_stream.worker.state.restore import read_runs, restore
from noesium_stream.worker.thread_pool import SWITCH_S
from tests.support.reading import PATIENCE_S
from tests.support.sample_agents import Echo
from tests.support.stores import inject
from tests.support.writing import Writing


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    before = gc.get_threshold()
    yield
    gc.enable()
    gc.set_threshold(*before)


def test_the_last_one_to_leave_switches_it_on_again() -> None:
    first, second = collector_paused(), collector_paused()
    first.__enter__()
    second.__enter__()
    assert not gc.isenabled()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


async def test_it_pauses_while_a_journal_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://")
    async with Worker(log, [Echo], home=tmp_path), Client(log) as client:
        run = await client.start("echo", {"text": "a"})
        await run.result(timeout=PATIENCE_S)
    journal = log.topology.journal("echo")
    ends = await log.end(journal)
    enabled: list[bool] = []
    decode = EnvelopeCodec.decode

    def spied(self: EnvelopeCodec, data: bytes) -> Any:
        enabled.append(gc.isenabled())
        return decode(self, data)

    monkeypatch.setattr(EnvelopeCodec, "decode", spied)
    for partition, end in ends.items():
        (await restore(log, tmp_path / "2", "echo", partition, Bounds(), print)).close()
        whole = OpenRun(7, [[0, end - 1]])
        await read_runs(log, journal, partition, {run.id: whole})
        assert gc.isenabled()
    assert enabled
    assert not any(enabled)
    garbage = Prepared(journal, 0, "run", "", ((SEQUENCE, b"0"), ("ce_type", b"run.started")), b"garbage")
    await inject(log, garbage)
    with pytest.raises(CorruptRecordError):
        await read_runs(log, journal, 0, {"run": OpenRun(1, [[ends[0], ends[0]]])})
    assert gc.isenabled()
    await log.close()


@pytest.mark.parametrize("agent", [Echo, Writing])
async def test_a_worker_leaves_the_settings_of_its_process_alone(
    agent: type[BaseAgent] | type[BaseHandler], tmp_path: Path
) -> None:
    gc.set_threshold(700, 10, 10)
    interval_s = sys.getswitchinterval()
    log = await open_log("memory://")
    async with Worker(log, [agent], home=tmp_path):
        assert gc.get_threshold() == (700, 10, 10)
        assert sys.getswitchinterval() == interval_s
        assert (await asyncio.to_thread(threading.current_thread)).name.startswith("asyncio")
    await log.close()


@pytest.mark.parametrize(("handlers", "objects"), [(False, NEW_OBJECTS), (True, OF_HANDLERS)])
async def test_the_process_of_a_worker_is_tuned_on_demand(handlers: bool, objects: int) -> None:
    gc.set_threshold(700, 10, 10)
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        tune_process(handlers=handlers)
        assert gc.get_threshold() == (objects, OLDER, OLDER)
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
        at_once, released = threading.Barrier(61), threading.Event()
        waiting = [
            asyncio.to_thread(lambda: (at_once.wait(PATIENCE_S), released.wait(PATIENCE_S)))
            for _ in range(60)
        ]
        ended = asyncio.gather(*waiting)
        await asyncio.to_thread(at_once.wait, PATIENCE_S)  # all of them have a thread
        released.set()
        await ended
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (NEW_OBJECTS + 1, 3, 4)])
def test_one_that_looks_later_still_or_never_stays_so(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    collect_less_often()
    assert gc.get_threshold() == chosen


def test_what_is_loaded_is_kept_apart_after_what_is_garbage_has_gone() -> None:
    code = (
        "import gc, weakref; from noesium_stream.worker.gc_tuning import spare_what_is_loaded\n"
        "class Ring: pass\n"
        "ring = Ring(); ring.itself = ring; seen = weakref.ref(ring); del ring\n"
        "assert seen() is not None\n"
        "spare_what_is_loaded()\n"
        "assert seen() is None and gc.get_freeze_count() > 1_000\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
