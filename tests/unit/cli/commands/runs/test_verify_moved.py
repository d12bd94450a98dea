"""`noesium verify --open` says which runs a deploy would move."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.cli.commands.runs.verify import _show
from noesium_stream.client.operate.replay import verify_open
from noesium_stream.client.operate.replay_target import agent_target
from tests.unit.worker.runs.test_pinned_graph_moved import V2, asked


async def test_a_run_that_can_be_moved_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with asked("memory://", tmp_path) as (log, client, run):
        _show(await verify_open(client, agent_target(V2, log)), True)
    shown = capsys.readouterr().out
    assert f"{run.id}  can go on, 2 steps" in shown or f"{run.id}  can go on, 1 step" in shown
    assert "can be moved by a migration before step 2: 1.0.0 to 2.0.0" in shown
