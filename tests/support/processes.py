"""Programs of their own in tests: started, listened to, killed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.support.reading import PATIENCE_S

ROOT = Path(__file__).parents[2]


class Program:
    """`python -m MODULE ARGUMENTS` and the lines that it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.lines: list[str] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, module: str, *arguments: object) -> Program:
        """Start it in the root of the repository."""
        words = [str(argument) for argument in arguments]
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *words, stdout=PIPE, stderr=PIPE, cwd=ROOT
            )
        )

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.endswith(b"\n"):
                self.lines.append(line.decode().rstrip("\n"))

    async def line(self, wanted: str) -> None:
        """Return when it has printed this line; fail when it ends before."""
        async with asyncio.timeout(PATIENCE_S):
            while wanted not in self.lines:
                if self._reading.done():
                    assert wanted in self.lines, (self.lines, await self.errors())
                await asyncio.sleep(0.002)

    async def errors(self) -> str:
        """What it wrote to standard error."""
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def kill(self) -> None:
        """SIGKILL, and wait until all that it printed was read."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def end(self) -> None:
        """Wait for its end; fail if that is no success."""
        async with asyncio.timeout(2 * PATIENCE_S):
            await self._reading
            errors = await self.errors()
            assert await self._process.wait() == 0, errors
