"""Processor time of the commands that only read a log on SQLite, from start to exit.

Beside each is a bare process that imports the libraries which every such command needs. Processor time is of
user and system together; byte code is compiled before anything is measured, as it is when a wheel is
installed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.harness import Figure, Side, interleave
from tests.support.command import COMMAND, Folder
from tests.support.reading_commands import READING, arguments, prepare

TARGET_S: Final = 0.35
BARE: Final = (sys.executable, "-c", "import asyncio, click, pydantic; pydantic.BaseModel")


@dataclass(frozen=True)
class PromptSettings:
    """Sizes of the bench."""

    folder: Path
    repetitions: int = 9


async def measure_reading(settings: PromptSettings) -> list[Figure]:
    """A figure for each command."""
    folder = Folder(settings.folder, NOESIUM_HOME=str(settings.folder / "home"))
    folder.env.pop("PYTHONDONTWRITEBYTECODE")
    folder.env["PYTHONPYCACHEPREFIX"] = str(settings.folder / "bytecode")
    toys = Folder.with_toys(settings.folder, NOESIUM_HOME=str(settings.folder / "home"))
    run_id = await asyncio.to_thread(prepare, toys)
    figures = []
    for command in READING:
        ours = [*COMMAND, *arguments(command, run_id)]
        await _seconds(ours, folder)  # compiles
        values = await interleave(
            {"ours": lambda line=ours: _seconds(line, folder), "bare": lambda: _seconds(BARE, folder)},
            settings.repetitions,
        )
        figures.append(
            Figure(
                "prompt",
                f"noesium {' '.join(command)}",
                "s",
                Side("processor time", values["ours"]),
                Side("asyncio, click and pydantic", values["bare"]),
                target=TARGET_S,
                at_least=False,
                absolute=True,
            )
        )
    return figures


async def _seconds(line: Sequence[str], folder: Folder) -> float:
    return await asyncio.to_thread(_processor_s, line, folder)


def _processor_s(line: Sequence[str], folder: Folder) -> float:
    """Run a command whose output nobody reads; return its processor time in seconds.

    Raises:
        RuntimeError: it failed.
    """
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    script = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(folder.path), *line]
    pid = os.posix_spawn(script[0], script, folder.env, file_actions=nothing)
    _, status, used = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(line)} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime
