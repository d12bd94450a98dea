"""A real worker is killed while its sub-agents work: nothing of them is left, and a person decides."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.command import Folder
from tests.support.daemons import SCRIPT, alive, gone, pids_in
from tests.support.killed import Later, killed, until
from tests.support.reading import PATIENCE_S

MODULE = """
import sys
from typing import Any
from noesium_stream import capability, cli_subagent

@capability("busy.work")
def work(how: str) -> Any: ...

AGENT = cli_subagent(
    "busy", [sys.executable, "-I", "-S", {script!r}], [work], environment=["PATH", "PIDS={pids}"], timeout=600
)
"""


async def test_no_process_outlives_a_killed_worker_and_the_open_request_waits_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    (tmp_path / "busy.py").write_text(MODULE.format(script=SCRIPT, pids=pids))
    folder = Folder(tmp_path)
    with folder.running("worker", "busy") as worker:
        worker.wait_for_error_line("at work on")
        log = await open_log(f"sqlite:///{tmp_path}/.noesium/log.db")
        async with Client(log) as client:
            forked = await client.start("busy", {"how": "children"})
            assert await forked.result(timeout=PATIENCE_S) == "forked"
            stuck = await client.start("busy", {"how": "silent"})
            await until(stuck, lambda event: event.payload.get("name") == "busy.work")
            worker.wait_for(lambda _: len(pids_in(pids)) == 4)  # two programs, and two children of one
            assert all(map(alive, pids_in(pids)))
            killed(worker)
            await gone(pids_in(pids))

            monkeypatch.syspath_prepend(tmp_path)
            from busy import AGENT  # noqa: PLC0415

            async with Worker(log, [AGENT], home=tmp_path / "home", clock=Later()):
                await until(stuck, lambda event: event.event_type == "effect.outcome.unknown")
                (effect,) = await stuck.unresolved_effects()
                assert effect.name == "busy.work"
                await stuck.resolve_effect(effect.effect_id, "result", "a person has looked", by="ada")
                assert await stuck.result(timeout=PATIENCE_S) == "a person has looked"
        await log.close()
    sys.modules.pop("busy")
    assert len(pids_in(pids)) == 4, "the program was not asked again"
