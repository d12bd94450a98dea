"""Sub-agents of tests: real processes that behave, or do not."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from noesium_stream.programs.program import Program
from noesium_stream.subagent.daemon import CliDaemon
from noesium_stream.subagent.lifecycle import Request
from noesium_stream.subagent.protocol import JsonLines, Protocol
from tests.support.reading import PATIENCE_S

SCRIPT = str(Path(__file__).parent / "hostile_daemon.py")


def command(how: str = "good") -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", SCRIPT, how)


def daemon(how: str = "good", *, pids: Path | None = None, **program: Any) -> CliDaemon:
    environment = [] if pids is None else [f"PIDS={pids}"]
    environment += program.pop("environment", ("PATH",))
    made = Program(command(how), tuple(environment), **program)
    return CliDaemon(made, JsonLines(), f"{how} of test", grace_s=0.2)


def speaking(protocol: Protocol, *words: str) -> CliDaemon:
    return CliDaemon(Program(words), protocol, f"{words[0]} of test", grace_s=0.2)


def request(request_id: str = "r1", **payload: Any) -> Request:
    return Request(request_id, "test.task", payload, {"session": "s"})


async def asked(one: CliDaemon, about: Request) -> Any:
    """The value of the answer, or its error."""
    await one.send(about)
    async with asyncio.timeout(PATIENCE_S):
        answer = await one.receive()
    return answer.value if answer.error is None else answer.error


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie, whose parent has not asked for its end, does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def gone(pids: list[int]) -> None:
    """Return when none of these processes runs."""
    async with asyncio.timeout(PATIENCE_S):
        while any(map(alive, pids)):
            await asyncio.sleep(0.005)


def pids_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []
