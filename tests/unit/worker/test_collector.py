"""The garbage collector pauses while a journal is read back, and goes on however that ends."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client
from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.codec import EnvelopeCodec
from noesium_stream.log import open_log
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.prepare import Prepared
from noesium_stream.worker import Worker
from noesium_stream.worker.collector import collector_paused
from noesium_stream.worker.restore import read_runs, restore
from noesium_stream.worker.state import Bounds, OpenRun
from tests.support.sample_agents import Echo


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


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
    async with Worker(log, [(Echo, None)], home=tmp_path), Client(log) as client:
        run = await client.start("echo", {"text": "a"})
        await run.result(timeout=10)
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
    await log._store.append([garbage], [0])  # type: ignore[attr-defined]
    with pytest.raises(CorruptRecordError):
        await read_runs(log, journal, 0, {"run": OpenRun(1, [[ends[0], ends[0]]])})
    assert gc.isenabled()
    await log.close()
