"""Programs of their own in tests: started, listened to, killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from tests.support import fork_server
from tests.support.reading import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]


class Program:
    """`python -m MODULE ARGUMENTS` and the lines that it has printed.

    The process is forked from one that has loaded the package (`tests/support/fork_server.py`).
    """

    def __init__(
        self, process: fork_server.Forked, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader
    ) -> None:
        self.lines: list[str] = []
        self._process = process
        self._reading = asyncio.create_task(self._read(stdout))
        self._errors = asyncio.create_task(stderr.read())

    @classmethod
    async def start(cls, module: str, *arguments: object) -> Program:
        """Start it in the root of the repository."""
        words = [module, *(str(argument) for argument in arguments)]
        process = fork_server.start(words, ROOT, os.environ)
        assert process is not None
        return cls(process, await _reader(process.stdout), await _reader(process.stderr))

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
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
        return (await self._errors).decode()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def kill(self) -> None:
        """SIGKILL, and wait until all that it printed was read."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await asyncio.to_thread(self._process.wait, PATIENCE_S)
        await self._reading
        await self._errors

    async def ended_by_signal(self) -> None:
        """Wait until it has died of a SIGKILL of its own."""
        async with asyncio.timeout(2 * PATIENCE_S):
            await self._reading
            errors = await self.errors()
        assert await asyncio.to_thread(self._process.wait, PATIENCE_S) == -signal.SIGKILL, errors

    async def end(self) -> None:
        """Wait for its end; fail if that is no success."""
        async with asyncio.timeout(2 * PATIENCE_S):
            await self._reading
            errors = await self.errors()
        assert await asyncio.to_thread(self._process.wait, PATIENCE_S) == 0, errors


def is_stopped(pid: int) -> bool:
    """Whether the process stands still (state T of proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def stop(pid: int, url: str) -> None:
    """Stop the process (SIGSTOP) at a moment when it does not hold the lock of its SQLite log.

    Otherwise nobody could write to that file until it goes on.
    """
    while True:
        os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: is_stopped(pid))
        if not url.startswith("sqlite:") or _unlocked(Path(urlsplit(url).path)):
            return
        os.kill(pid, signal.SIGCONT)
        await eventually(lambda: not is_stopped(pid))


def _unlocked(file: Path) -> bool:
    """Whether this SQLite file can be written."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as beside:
        try:
            beside.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                return False
            raise
        return True


async def _reader(pipe: IO[str]) -> asyncio.StreamReader:
    """What comes out of a pipe, which is closed behind its end."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader
