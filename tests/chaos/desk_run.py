"""One run of a desk (`desk`), what its tools leave outside, and what has to hold of its calls at the end.

    async with DeskRun(launcher, folder, url, deadline) as one:
        victim = await one.start("victim", "after:tool.invoked")
        run = await one.order(["send", {"words": "a"}])

Whatever happened: an invoked call was invoked once, and has one end; an answer was consumed by one call; a
replay has no difference and calls nothing; `noesium show` tells each call once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from noesium_stream.client import Run
from noesium_stream.event.envelope import EventEnvelope
from tests.chaos.launcher import Launched, Launcher
from tests.chaos.one_run import PATIENCE_S, OneRun, TooSlowError
from tests.support.invariants import Book, broken, read_book
from tests.support.mcp import lines

DESK, ASKING_DESK, PIPE_DESK, WEB_DESK = "desk", "asking_desk", "pipe_desk", "web_desk"
CLASSES: Final = {DESK: "Desk", ASKING_DESK: "AskingDesk", PIPE_DESK: "PipeDesk", WEB_DESK: "WebDesk"}
HTTP_SERVER: Final = Path(__file__).parents[1] / "support" / "mcp_http_server.py"
BY_HAND: Final = {"result": "by hand"}
"""What a person says that a call has given."""

OF_LEDGER: Final = ("send", "label")
"""The tools that write to the ledger; what others do outside is counted by each play."""


class DeskRun(OneRun):
    """See the module.

    Attributes:
        outside: what tools leave behind.
        kind: the desk; a play may choose another one than `desk` before it begins.
    """

    kinds: Sequence[str] = tuple(CLASSES)

    def __init__(self, launcher: Launcher, folder: Path, url: str, deadline: timedelta) -> None:
        super().__init__(launcher, folder, url, deadline)
        self.kind = DESK
        self.outside = folder / "outside"
        self._runs: list[Run] = []
        self._commands = 0

    async def __aenter__(self) -> DeskRun:
        await super().__aenter__()
        for name in ("workspace", "pipe", "safe", "web"):
            (self.outside / name).mkdir(parents=True)
        (self.outside / "limit_s").write_text(str(self.deadline.total_seconds()))
        return self

    # -- processes ---------------------------------------------------------------------------------------

    async def start(self, name: str, point: str | None = None, number: int = 1, **options: Any) -> Launched:
        """Start a worker that has the desk."""
        options.setdefault("agents", [self._code])
        return await super().start(name, point, number, **options)

    @property
    def _code(self) -> str:
        return f"tests.chaos.desk:{CLASSES[self.kind]}"

    async def command(self, *words: str) -> tuple[int, str]:
        """Run a command on the log; its exit code, and what it has written to standard output."""
        self._commands += 1
        name = f"command{self._commands}"
        out = self.outside / f"{name}.out"
        one = await self.start(name, role="command", more={"words": words, "out": str(out)})
        code = await one.ended(PATIENCE_S)
        return code, out.read_text() + one.said()

    @asynccontextmanager
    async def web_server(self, port: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
        """The MCP server at a URL, in a process of its own."""
        folder = self.outside / "web"
        (folder / "port").unlink(missing_ok=True)
        words = [sys.executable, "-I", "-S", str(HTTP_SERVER), str(folder), str(port)]
        process = await asyncio.create_subprocess_exec(*words, env={})
        try:
            await until(lambda: lines(folder, "port"))
            (self.outside / "url").write_text(f"http://127.0.0.1:{self.web_port}/mcp")
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    @property
    def web_port(self) -> int:
        """The port at which the MCP server listens, or has listened."""
        return int((self.outside / "web" / "port").read_text())

    # -- the run -----------------------------------------------------------------------------------------

    async def order(self, *orders: list[Any]) -> Run:
        """Start a run with these calls, one after the other."""
        run = await self.ask(list(orders), kind=self.kind)
        self._runs.append(run)
        return run

    def made(self, server: str) -> list[str]:
        """The calls that an MCP server has begun: their tools, and their keys where it is told them."""
        return lines(self.outside / server, "calls")

    async def holds(self) -> None:
        """Judge the log, the outside, and what commands say about the run.

        Raises:
            TooSlowError: a call's time was over before it was killed.
        """
        calls = self.calls()
        for run in self._runs:
            events = [event async for event in run.events(follow=False)]
            if any(event.event_type == "tool.timeout" for event in events):
                raise TooSlowError("a call has exceeded its time limit")
            assert wrong_calls(events) == []
            code, said = await self.command("verify", run.id, "--graph", self._code)
            assert code == 0, said
            code, said = await self.command("show", run.id)
            assert code == 0, said
            assert shown(said) == Counter(invoked_names(events)), said
        assert self.calls() == calls, "verify and show call nothing"
        book = await read_book(self.log, self.kinds)
        faults = broken(book, self._asked, calls)
        others = tuple(
            f"effect: {name} (" for name in invoked_names(book_events(book)) if name not in OF_LEDGER
        )
        assert [fault for fault in faults if not fault.startswith(others)] == []


def wrong_calls(events: Sequence[EventEnvelope]) -> list[str]:
    """Calls that are not told of once with one end, and answers that are consumed twice or not at all."""
    told: dict[str, Counter[str]] = {}
    for event in events:
        if event.event_type.startswith("tool."):
            told.setdefault(event.payload["call_id"], Counter())[event.event_type] += 1
    once = {"tool.invoked": 1, "tool.completed": 1}, {"tool.invoked": 1, "tool.failed": 1}, {"tool.denied": 1}
    faults = [f"{call_id}: {dict(types)}" for call_id, types in told.items() if dict(types) not in once]
    consumed = Counter(
        event.payload["approval_id"]
        for event in events
        if event.event_type == "tool.invoked" and event.payload.get("approval_id")
    )
    approved = Counter(
        event.payload["approval_id"]
        for event in events
        if event.event_type == "approval.answered" and event.payload["approved"]
    )
    if consumed != approved or any(count != 1 for count in consumed.values()):
        faults.append(f"approvals: {dict(approved)} were given, {dict(consumed)} consumed")
    return faults


def book_events(book: Book) -> list[EventEnvelope]:
    """The events of all runs."""
    return [event for events in book.runs.values() for event in events]


def invoked_names(events: Sequence[EventEnvelope]) -> list[str]:
    """The tools of the calls that have begun."""
    return [event.payload["tool_name"] for event in events if event.event_type == "tool.invoked"]


def shown(said: str) -> Counter[str]:
    """The calls in what `noesium show` says, by their tools."""
    found = (line.partition("─ · ")[2].split() for line in said.splitlines())
    return Counter(words[0] for words in found if words)


async def until(condition: Callable[[], object]) -> None:
    """Return when it holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def programs_with(text: str) -> list[int]:
    """The processes of this machine that have this text in their command lines."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            words = Path("/proc", entry, "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text.encode() in words:
            found.append(int(entry))
    return found
