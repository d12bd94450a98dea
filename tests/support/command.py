"""`noesium` as a real process in a folder of its own, with the toy agents in it.

The process is forked from one that has loaded the package (`tests/support/fork_server.py`), unless a test
has made its command another than `python -m`, or changed its environment by more than settings.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.support import fork_server
from tests.support.reading import PATIENCE_S

TOYS = Path(__file__).parents[1] / "data" / "toys"
TIMEOUT_S = PATIENCE_S
COMMAND = (sys.executable, "-m", "noesium_stream.cli")


Process = subprocess.Popen[str] | fork_server.Forked


def close(process: Process) -> None:
    """Close what a process has written to."""
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


class Folder:
    """A current folder for commands. Nothing of the caller's NOESIUM_* variables is seen there.

    Attributes:
        command: what is started.
        descriptors: files that it inherits.
    """

    def __init__(self, path: Path, **env: str) -> None:
        self.path = path
        self.command: tuple[str, ...] = COMMAND
        self.descriptors: tuple[int, ...] = ()
        outer = {name: value for name, value in os.environ.items() if not name.startswith("NOESIUM_")}
        # Byte code is looked up by a source's size and second: too coarse for agents that a test changes.
        self.env = {**outer, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1", **env}

    @classmethod
    def with_toys(cls, path: Path, **env: str) -> Folder:
        shutil.copytree(TOYS / "agents", path / "agents", dirs_exist_ok=True)
        return cls(path, **env)

    def run(self, *args: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        process = self.start(*args)
        said = ["", ""]

        def read(number: int, stream: IO[str]) -> None:
            said[number] = stream.read()

        readers = [
            threading.Thread(target=read, args=(number, stream), daemon=True)
            for number, stream in enumerate((process.stdout, process.stderr))
            if stream is not None
        ]
        for reader in readers:
            reader.start()
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        for reader in readers:
            reader.join()
        close(process)
        return subprocess.CompletedProcess([*self.command, *args], code, *said)

    def start(self, *args: str) -> Process:
        """Start a command."""
        if self.command[:2] == COMMAND[:2]:
            forked = fork_server.start([*self.command[2:], *args], self.path, self.env)
            if forked is not None:
                return forked
        return subprocess.Popen(
            [*self.command, *args],
            cwd=self.path,
            env=self.env,
            pass_fds=self.descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ok(self, *args: str, timeout_s: float = TIMEOUT_S) -> str:
        done = self.run(*args, timeout_s=timeout_s)
        assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *args: str, timeout_s: float = TIMEOUT_S) -> Any:
        return json.loads(self.ok(*args, timeout_s=timeout_s))

    @contextmanager
    def running(self, *args: str) -> Iterator[Running]:
        process = Running(self, args)
        try:
            yield process
        finally:
            process.end()


class Running:
    """A command that goes on; what it says is collected as it comes."""

    def __init__(self, folder: Folder, args: tuple[str, ...]) -> None:
        self._process = folder.start(*args)
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self.out), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self.err), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, condition: Callable[[Running], bool], timeout_s: float = TIMEOUT_S) -> None:
        """Return when `condition` holds; fail when the process ends before, or time is up."""
        deadline = time.monotonic() + timeout_s
        while not condition(self):
            ended = self._process.poll()
            if ended is not None and not condition(self):
                self._join()
                if condition(self):
                    return
                raise AssertionError(f"ended with {ended}: {self.out} {self.err}")
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing came of it in {timeout_s} s: {self.out} {self.err}")
            time.sleep(0.01)

    def wait_for_error_line(self, text: str, timeout_s: float = TIMEOUT_S) -> str:
        """The first line on standard error that holds `text`."""
        self.wait_for(lambda process: any(text in line for line in process.err), timeout_s)
        return next(line for line in self.err if text in line)

    def signal(self, number: int = signal.SIGINT) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        code = self._process.wait(timeout_s)
        self._join()
        return code

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)
        self._join()
        close(self._process)

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(TIMEOUT_S)
