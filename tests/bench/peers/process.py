"""A program of a peer in a process of its own, which says lines of JSON."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LINE_BYTES = 1 << 22
PATIENCE_S = 600.0
_SHOWN_CHARACTERS = 300


class PeerProcess:
    """A process and what it said; lines that are no JSON object are passed over, as of a chatty library.

    Args:
        process: with pipes for its input and output.
        errors: the file of its standard error.
    """

    def __init__(self, process: Process, errors: Path) -> None:
        self.process = process
        self._errors = errors

    async def said(self, name: str) -> Any:
        """The value of the next line with this name.

        Raises `RuntimeError` where the process ends before, `TimeoutError` where that takes too long.
        """
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while line := await self.process.stdout.readline():
                with suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict) and name in found:
                        return found[name]
            raise RuntimeError(f"it ended with {await self.process.wait()}: {self._last_error()}")

    def tell(self, what: Mapping[str, Any]) -> None:
        """Write a line of JSON to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")

    async def end(self) -> None:
        """Let it end by itself: its input ends.

        Raises `TimeoutError` where that takes too long.
        """
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            await self.process.wait()

    async def kill(self) -> None:
        """SIGKILL; return when it is gone."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    def _last_error(self) -> str:
        lines = [line.strip() for line in self._errors.read_text(errors="replace").splitlines()]
        return next((line[:_SHOWN_CHARACTERS] for line in reversed(lines) if line), "it said nothing")


@asynccontextmanager
async def running(
    command: Sequence[str | Path], errors: Path, more: Mapping[str, str] | None = None
) -> AsyncIterator[PeerProcess]:
    """A process that is killed at the end, if it is still there."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **(more or {})}
    with errors.open("ab") as file:
        process = await create_subprocess_exec(
            *map(str, command),
            cwd=ROOT,
            env=environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=file,
            limit=LINE_BYTES,
        )
    made = PeerProcess(process, errors)
    try:
        yield made
    finally:
        await made.kill()
