"""`noesium` as a real process in a folder of its own, with the toy agents in it."""

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
from typing import Any

TOYS = Path(__file__).parents[1] / "data" / "toys"
TIMEOUT_S = 60.0


class Folder:
    """A current folder for commands. Nothing of the caller's NOESIUM_* variables is seen there."""

    def __init__(self, path: Path, **env: str) -> None:
        self.path = path
        self.command: tuple[str, ...] = (sys.executable, "-m", "noesium_stream.cli")
        outer = {name: value for name, value in os.environ.items() if not name.startswith("NOESIUM_")}
        # Byte code is looked up by a source's size and second: too coarse for agents that a test changes.
        self.env = {**outer, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1", **env}

    @classmethod
    def with_toys(cls, path: Path, **env: str) -> Folder:
        shutil.copytree(TOYS / "agents", path / "agents", dirs_exist_ok=True)
        return cls(path, **env)

    def run(self, *args: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *args],
            cwd=self.path,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
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
        self._process = subprocess.Popen(
            [*folder.command, *args],
            cwd=folder.path,
            env=folder.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
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
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(TIMEOUT_S)
