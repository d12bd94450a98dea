"""What lies outside of all processes: calls of effects are done there, and kept in a ledger, which is a file.

A call is a line when it begins, one when it is done, one when its caller has heard of it. Lines are appended
by the operating system: a process that is killed loses none that it has written.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

from tests.sim.world import result_of
from tests.support.invariants import Call


class Outside:
    """The outside, as one process sees it.

    Args:
        folder: for the ledger, the same for all processes.
        process: who calls.
    """

    def __init__(self, folder: Path, process: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._process = process
        self._file = os.open(folder / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._chance = Random(secrets.randbits(64))

    async def do(self, kind: str, words: str, key: str) -> str:
        """Do it, or refuse it plainly: words that end in `!` once.

        Raises:
            ConnectionRefusedError: it was not done.
        """
        call = secrets.token_hex(8)
        self._say(call, "begun", key=key, kind=kind, words=words, process=self._process)
        try:
            await asyncio.sleep(self._pause())
        except asyncio.CancelledError:
            self._say(call, "ended")  # broken off, before anything was done
            raise
        if words.endswith("!") and self._first(words):
            self._say(call, "refused")
            raise ConnectionRefusedError(f"{words} is refused")
        self._say(call, "done")
        if self._chance.random() < 0.5:
            await asyncio.sleep(self._pause())
        self._say(call, "ended")
        return result_of(kind, words)

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)

    def _say(self, call: str, what: str, **more: Any) -> None:
        line = json.dumps({"call": call, "what": what, "at": time.time(), **more})
        os.write(self._file, line.encode() + b"\n")

    def _first(self, words: str) -> bool:
        try:
            os.close(os.open(self._folder / f"refused {words}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _pause(self) -> float:
        return self._chance.random() ** 4 * 1.5


class Ledger:
    """Reads what the file says, as far as it has come."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger"
        self._offset = 0
        self._calls: dict[str, Call] = {}
        self._by_key: dict[str, list[Call]] = {}

    def calls(self) -> list[Call]:
        """All calls, in the order in which they began."""
        self._read()
        return list(self._calls.values())

    def status(self, key: str, alive: Collection[str]) -> tuple[str, Any]:
        """What a person finds out about calls of this key: `running`, `done`, `refused` or `none`; and what
        it gave.
        """
        self._read()
        calls = self._by_key.get(key, [])
        if any(call.outcome is None and call.ended_s is None and call.process in alive for call in calls):
            return "running", None
        done = next((call for call in calls if call.outcome == "done"), None)
        if done is not None:
            return "done", done.result
        return ("refused" if any(call.outcome == "refused" for call in calls) else "none"), None

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        if said["what"] == "begun":
            call = Call(said["key"], said["kind"], said["words"], said["process"], said["at"])
            self._calls[said["call"]] = call
            self._by_key.setdefault(call.key, []).append(call)
            return
        call = self._calls[said["call"]]
        if said["what"] == "ended":
            call.ended_s = said["at"]
            return
        call.outcome = said["what"]
        if call.outcome == "done":
            call.result = result_of(call.kind, call.words)
        else:
            call.ended_s = said["at"]
