"""Who goes on, of those who are there when one is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.launcher import Launched
from tests.chaos.points import POINTS
from tests.chaos.scene import Outcome, Scene


@pytest.mark.parametrize(("told", "goes_on"), [(False, ["first"]), (True, ["first", "next"])])
async def test_who_was_told_to_end_and_has_not_yet_is_nobody_who_goes_on(
    tmp_path: Path, told: bool, goes_on: list[str]
) -> None:
    reading, writing = os.pipe()
    # Slow to end, as a worker is that hands its work over.
    with subprocess.Popen(
        ["sleep", "60"], preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ) as slow:
        first = Launched("first", tmp_path, tmp_path / "said", SimpleNamespace(), slow.pid, reading)  # type: ignore[arg-type]
        try:
            if told:
                first.signal(signal.SIGTERM)
            there = [first.name]

            async def start(name: str, **options: Any) -> None:
                there.append(name)

            stage: Any = SimpleNamespace(chance=random.Random(1), processes=[first], start=start)
            scene = Scene(stage, POINTS["during-restore"], "during-restore", Outcome(1, "", ""), None)
            await scene._succeed(SimpleNamespace(home=tmp_path))  # type: ignore[arg-type]
            assert there == goes_on
        finally:
            first._loop.remove_reader(first._pidfd)
            first._loop.remove_reader(reading)
            os.close(first._pidfd)
            os.close(writing)
            slow.kill()
    os.close(reading)
