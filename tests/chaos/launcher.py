"""Starts the harness' processes, hears from them, and kills them from outside.

    async with Launcher(folder) as launcher:
        victim = await launcher.start("victim", url=url, ledger=file, point="after-intent", number=3)
        await victim.arrived()          # it stands still (SIGSTOP) at the point
        await victim.kill()

They are forked from parents that have everything loaded (`zygote`), one for each hash seed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos.zygote import AGENTS, Spec
from tests.support.processes import ROOT

HASH_SEEDS = (0, 1, 4242)
PATIENCE_S = 400.0


class Zygote:
    """A parent of processes; see `zygote`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    async def begin(cls, hash_seed: int) -> Zygote:
        """Start it; it takes a second or two until it answers."""
        outer = {name: value for name, value in os.environ.items() if not name.startswith("NOESIUM_")}
        env = {**outer, "PYTHONHASHSEED": str(hash_seed), "NO_COLOR": "1"}
        words = [sys.executable, "-m", "tests.chaos.zygote"]
        return cls(await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, cwd=ROOT, env=env))

    async def ready(self) -> None:
        """Return when it can fork."""
        async with self._turn:
            await self._line()

    async def ask(self, **question: Any) -> dict[str, Any]:
        """Its answer to a question."""
        async with self._turn:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            await self._process.stdin.drain()
            return await self._line()

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "a zygote has died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def end(self) -> None:
        """End it, and all that it has started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


class Launched:
    """A process that runs, or has run.

    Attributes:
        lines: what it has said on its pipe.
        code: its exit code, or minus the signal that ended it; None: it lives.
        cpu_s: what it has taken of a processor, once it has ended.
        told: it was told to end, and may live on for a while.
    """

    def __init__(self, name: str, home: Path, said: Path, zygote: Zygote, pid: int, pipe: int) -> None:
        self.name = name
        self.home = home
        self.pid = pid
        self.lines: list[str] = []
        self.code: int | None = None
        self.cpu_s = 0.0
        self.told = False
        self._said = said
        self._zygote = zygote
        self._pipe = pipe
        self._rest = b""
        self._arrived = asyncio.Event()
        self._gone = asyncio.Event()
        self._reaping = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(pid)
        self._loop.add_reader(self._pidfd, self._gone.set)
        self._loop.add_reader(pipe, self._hear)

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return not self._gone.is_set()

    def said(self) -> str:
        """What it has written to standard output and error."""
        return self._said.read_text(errors="replace") if self._said.exists() else ""

    async def arrived(self) -> None:
        """Return when it stands still at its point, or has ended.

        Raises:
            TimeoutError: it does neither.
        """
        async with asyncio.timeout(PATIENCE_S):
            done = [asyncio.ensure_future(event.wait()) for event in (self._arrived, self._gone)]
            try:
                await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in done:
                    one.cancel()

    @property
    def stands(self) -> bool:
        """Whether it has come to its point."""
        return self._arrived.is_set()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; harmless when it has ended (it is not reaped before `ended`)."""
        self.told |= number in (signal.SIGTERM, signal.SIGINT)
        if self.code is None:
            os.kill(self.pid, number)

    async def kill(self) -> int:
        """SIGKILL; see `ended`."""
        self.signal(signal.SIGKILL)
        return await self.ended()

    async def ended(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for its end; its exit code, or minus the signal that ended it.

        Raises:
            TimeoutError: it goes on.
        """
        async with asyncio.timeout(patience_s):
            await self._gone.wait()
        async with self._reaping:
            if self.code is not None:
                return self.code  # another one who waited has reaped it
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._hear()
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            ended = await self._zygote.ask(reap=self.pid)
            self.code, self.cpu_s = int(ended["code"]), ended["cpu_s"]
            return self.code

    def _hear(self) -> None:
        try:
            data = os.read(self._pipe, 65_536)
        except BlockingIOError:
            return
        if not data:
            if self.code is None and self._gone.is_set():
                return
            self._loop.remove_reader(self._pipe)  # its only writer has gone
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode() for line in lines]
        if any(line.startswith(b"at ") for line in lines):
            self._arrived.set()


class Launcher:
    """The processes of a harness; those that live at its end are killed.

    Args:
        folder: for their pipes, homes and what they say.
        hash_seeds: of their parents.
    """

    def __init__(self, folder: Path, hash_seeds: Sequence[int] = HASH_SEEDS) -> None:
        self._folder = folder
        self._hash_seeds = hash_seeds
        self._zygotes: list[Zygote] = []
        self._launched: list[Launched] = []

    async def __aenter__(self) -> Self:
        self._zygotes = [await Zygote.begin(seed) for seed in self._hash_seeds]
        await asyncio.gather(*(zygote.ready() for zygote in self._zygotes))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(one.kill() for one in self._launched if one.code is None))
        await asyncio.gather(*(zygote.end() for zygote in self._zygotes))

    async def start(
        self,
        name: str,
        *,
        url: str,
        ledger: Path,
        folder: Path | None = None,
        role: str = "worker",
        home: Path | None = None,
        point: str | None = None,
        number: int = 1,
        plant: str | None = None,
        seed: str = "",
        hash_seed: int = 0,
        agents: Sequence[str] = AGENTS,
        more: dict[str, Any] | None = None,
    ) -> Launched:
        """Start a process; it may not have begun yet when this returns. See `zygote.Spec`.

        It has its pipe in `folder` (default: the launcher's), a home of its own there unless one is given,
        and the hash seed of this index in the launcher's.
        """
        folder = folder or self._folder
        home = home or folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        pipe, said = folder / f"{name}.pipe", folder / f"{name}.said"
        os.mkfifo(pipe)
        # Before the process opens it: it would wait for a reader.
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        zygote = self._zygotes[hash_seed % len(self._zygotes)]
        spec = Spec(
            name=name,
            role=role,
            url=url,
            home=str(home),
            ledger=str(ledger),
            pipe=str(pipe),
            said=str(said),
            point=point,
            number=number,
            plant=plant,
            seed=seed,
            agents=list(agents),
            more=more or {},
        )
        pid = (await zygote.ask(start=spec))["pid"]
        launched = Launched(name, home, said, zygote, pid, reader)
        self._launched.append(launched)
        return launched
