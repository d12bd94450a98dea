"""Who goes on, of those who are there when one is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import Callable
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
            await scene._succeed(SimpleNamespace(home=tmp_path), 0)  # type: ignore[arg-type]
            assert there == goes_on
        finally:
            first._loop.remove_reader(first._pidfd)
            first._loop.remove_reader(reading)
            os.close(first._pidfd)
            os.close(writing)
            slow.kill()
    os.close(reading)


async def test_a_takeover_before_all_is_asked_is_the_one_that_a_late_request_comes_after() -> None:
    acquired, delivered = ["victim"], []
    standby = SimpleNamespace(name="standby", alive=True, told=False)

    async def ask(first: float, last: float) -> None:
        acquired.append("standby")  # the machine is busy: the session of the one that was killed has ended

    async def nothing(*given: Any) -> bool:
        return True

    async def until(condition: Callable[[], bool], patience_s: float) -> None:
        assert condition(), "nobody takes over a second time"

    async def deliver() -> None:
        delivered.append(len(acquired))

    reader = SimpleNamespace(acquired=acquired, until=until)
    stage: Any = SimpleNamespace(
        chance=SimpleNamespace(choice=lambda choices: choices[-1], randint=lambda first, last: first),
        processes=[standby],
        reader=reader,
        ask=ask,
        kill=nothing,
        settled=nothing,
    )
    scene: Any = Scene(stage, POINTS["during-commit"], "during-commit", Outcome(1, "", ""), None)
    scene._proxy = SimpleNamespace(deliver=deliver)
    asking = asyncio.get_running_loop().create_future()
    asking.set_result(None)
    scene._worker = lambda: asyncio.sleep(0, (SimpleNamespace(name="victim"), asking))
    scene._arrival = nothing
    await scene.play(lambda passed: None)
    assert delivered == [2]


async def test_two_who_wait_for_the_end_of_a_process_reap_it_once(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    asked: list[dict[str, Any]] = []

    async def ask(**question: Any) -> dict[str, Any]:
        asked.append(question)
        await asyncio.sleep(0)
        return {"code": -9, "cpu_s": 0.5}

    with subprocess.Popen(["sleep", "60"]) as slow:
        zygote: Any = SimpleNamespace(ask=ask)
        one = Launched("one", tmp_path, tmp_path / "said", zygote, slow.pid, reading)
        os.close(writing)
        one.signal(signal.SIGKILL)
        assert await asyncio.gather(one.ended(), one.kill(), one.ended()) == [-9, -9, -9]
        assert asked == [{"reap": slow.pid}]
        assert one.cpu_s == 0.5
