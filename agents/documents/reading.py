"""The processes that read files: a few at a time, each file with a deadline."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.documents.listing import Found, Reason

DEADLINE_S = 30.0
FILES_PER_PROCESS = 40
"""A further process is worth its start for as many files."""

_CODE_FOLDER = Path(__file__).resolve().parents[2]


def read_all(
    root: Path,
    found: Sequence[Found],
    known: Mapping[str, str | None],
    stop: threading.Event,
    *,
    deadline_s: float = DEADLINE_S,
) -> Iterator[tuple[Found, dict[str, Any]]]:
    """Read `found` files below `root`, in any order; see `parsing.read_document` for what comes back.

    `known` has the hash of files that were read before. `stop` ends it early, between files. Closing the
    iterator ends the processes.
    """
    waiting: queue.SimpleQueue[Found] = queue.SimpleQueue()
    done: queue.Queue[tuple[Found, dict[str, Any]] | BaseException | None] = queue.Queue(maxsize=64)
    for item in found:
        waiting.put(item)
    count = max(1, min(os.cpu_count() or 1, 4, -(-len(found) // FILES_PER_PROCESS)))
    halt = threading.Event()

    def work() -> None:
        process = _Process(deadline_s)
        outcome: BaseException | None = None
        try:
            while not halt.is_set() and not stop.is_set():
                item = waiting.get_nowait()
                _put(done, (item, process.read(root, item, known.get(item.path))), halt)
        except queue.Empty:
            pass  # all files are taken
        except Exception as error:  # handed to the caller, who raises it
            outcome = error
        finally:
            process.close()
            _put(done, outcome, halt)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield from _results(done, count)
    finally:
        halt.set()
        for thread in threads:
            thread.join()


def _results(
    done: queue.Queue[tuple[Found, dict[str, Any]] | BaseException | None], count: int
) -> Iterator[tuple[Found, dict[str, Any]]]:
    while count:
        result = done.get()
        if result is None:
            count -= 1
        elif isinstance(result, BaseException):
            raise result
        else:
            yield result


def _put(target: queue.Queue[Any], item: Any, halt: threading.Event) -> None:
    """Put, unless nobody takes any more."""
    while not halt.is_set():
        try:
            target.put(item, timeout=0.2)
        except queue.Full:
            continue
        return


class _Process:
    """A child that runs `parsing.main`; started at the first file, and anew after it was killed."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._child: subprocess.Popen[str] | None = None

    def read(self, root: Path, found: Found, sha256: str | None) -> dict[str, Any]:
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        late = threading.Event()

        def kill() -> None:
            late.set()
            child.kill()

        request = {
            "full": str(root / found.path),
            "path": found.path,
            "format": found.format,
            "sha256": sha256,
        }
        timer = threading.Timer(self._deadline_s, kill)
        timer.daemon = True
        timer.start()
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = ""
        finally:
            timer.cancel()
        if line.endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.close()
        known = {"sha256": "", "size": found.size, "mtime_ns": found.mtime_ns}
        if late.is_set():
            return known | {"reason": Reason.TOO_SLOW, "detail": f"more than {self._deadline_s:g} s"}
        return known | {"reason": Reason.DAMAGED, "detail": "its parser broke down over it"}

    def close(self) -> None:
        """End the child, whatever it does."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _start(self) -> subprocess.Popen[str]:
        # -P: the folder that the user stands in must not lend its modules to the child
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "agents.documents.parsing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": _python_path(), "PYTHONUTF8": "1"},
        )
        return self._child


def _python_path() -> str:
    return os.pathsep.join([str(_CODE_FOLDER), *(path for path in [os.environ.get("PYTHONPATH")] if path)])
