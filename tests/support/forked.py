"""Commands as processes that begin at once: they are forked from one that has everything loaded.

    python -m tests.support.forked

reads lines of JSON from standard input and answers each with a number. `{"start": ARGUMENTS, "folder":
FOLDER, "said": FILE, "env": {…}}` is `noesium ARGUMENTS...` there, and what it says goes to the file;
the answer is its pid. `{"reap": PID}` waits for it; the answer is its exit code, or minus the signal that
ended it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.processes import ROOT


class Forked:
    """The parent; use it as an async context manager."""

    async def __aenter__(self) -> Self:
        env = {name: value for name, value in os.environ.items() if not name.startswith("NOESIUM_")}
        words = [sys.executable, "-m", "tests.support.forked"]
        self._process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, cwd=ROOT, env=env
        )
        self._turn = asyncio.Lock()
        self._alive: set[int] = set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self._alive:
            os.kill(pid, 9)
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def start(self, folder: Path, said: Path, arguments: Sequence[str], **env: str) -> int:
        """Start a command; its process id."""
        pid = await self._ask(
            {"start": list(arguments), "folder": str(folder), "said": str(said), "env": env}
        )
        self._alive.add(pid)
        return pid

    async def reap(self, pid: int) -> int:
        """Its exit code, as soon as it has ended."""
        code = await self._ask({"reap": pid})
        self._alive.discard(pid)
        return code

    async def _ask(self, question: dict[str, Any]) -> int:
        async with self._turn:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            await self._process.stdin.drain()
            return int(await self._process.stdout.readline())


def _start(question: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.chdir(question["folder"])
        os.environ.update(question["env"])
        said = os.open(question["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        main(question["start"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    from noesium_stream.cli import main
    from noesium_stream.cli.commands import worker  # noqa: F401 - loaded once, here

    for line in sys.stdin:
        asked = json.loads(line)
        if "start" in asked:
            answer = _start(asked)
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["reap"], 0)[1])
        print(answer, flush=True)
