"""Tells somebody outside that a question of a run waits: by a command, by a webhook, or by both.

Decision record: the question is on the log before anybody is told, and no run waits for the telling. So a
hook that fails, hangs or is slow costs nothing but its own line on standard error. A process that dies
between the two tells nobody; `noesium approvals` lists the question all the same. Telling twice is worse than
that: only what has certainly told nobody is tried again, and only where that may help. That is a command that
could not be started, a webhook that was not reached before anything was written to it, and its answers 429
and 503. After that nothing is certain: a command may tell somebody and then fail, and a server may do so and
then reset the connection or answer 500. That is not repeated, and the line says that somebody may have been
told.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import SplitResult, urlsplit

from noesium_stream.clock import Clock
from noesium_stream.errors import ConfigError, NoesiumError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.labels import shortened, summary_of

TIMEOUT_S: Final = 10.0
"""Longest time for one command, one connection and one answer, in seconds; then it is ended."""

STDERR_S: Final = 0.5
"""How long the rest of a failed command's standard error is waited for once it has ended, in seconds."""

PAUSES_S: Final = (1.0, 5.0)
"""Pauses before further attempts after a failure that has certainly told nobody, in seconds."""

AT_ONCE: Final = 4
MOST_WAITING: Final = 10_000
CLOSING_S: Final = 2.0
"""How long a closing worker waits for what is under way, in seconds."""

_LISTED: Final = "noesium approvals lists what is asked"
_LONGEST_QUESTION: Final = 16_000
_MOST_SAID: Final = 2_000
_SHOWN: Final = 200
_STDERR: Final = 2
_BUSY: Final = frozenset({"429", "503"})


_HOW: Final = "Give on_approval (NOESIUM_ON_APPROVAL, --on-approval) as a program and its arguments."


class _UntoldError(NoesiumError):
    """Nobody was told; `again`: another attempt may help."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again


class _UncertainError(NoesiumError):
    """Somebody may have been told."""


class ApprovalHook:
    """Tells a command and a webhook of each question, in the background.

    Args:
        command: a command line, without a shell; it gets the question as JSON on standard input.
        webhook: an http or https URL; the JSON is posted there.
        log: URL of the log without secrets, for the message.
        progress: takes one line for people.
        clock: clock of the pauses.

    Raises:
        ConfigError: the command is not there, or the URL is not one that can be posted to.

    Use it as an async context manager.
    """

    def __init__(
        self,
        *,
        command: str | None,
        webhook: str | None,
        log: str,
        progress: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._ways: list[tuple[str, Callable[[bytes], Any]]] = []
        if command is not None:
            argv = _command(command)
            self._ways.append((f"the command {argv[0]}", lambda body: _run(argv, body)))
        if webhook is not None:
            url = webhook_url(webhook)
            self._ways.append((f"the webhook at {url.hostname}", lambda body: _post(url, body)))
        self._log = log
        self._progress = progress
        self._clock = clock
        self._waiting: deque[tuple[str, Callable[[bytes], Any], bytes]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropped = 0

    def tell(self, event: EventEnvelope) -> None:
        """Queue the message about an `approval.requested`; returns at once."""
        body = message_about(event, self._log)
        for name, send in self._ways:
            if len(self._waiting) >= MOST_WAITING:
                self._dropped += 1
                continue
            self._waiting.append((name, send, body))
            if len(self._tasks) < AT_ONCE:
                task = asyncio.create_task(self._work(), name="approval hook")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSING_S)
        left = len(self._waiting) + len(self._tasks)
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if left:
            what = "message about a question was" if left == 1 else "messages about questions were"
            self._progress(f"{left} {what} given up, and may not have been sent: {_LISTED}")

    async def _work(self) -> None:
        while self._waiting:
            await self._tell(*self._waiting.popleft())
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._progress(f"{dropped} messages about questions were too many: {_LISTED}")

    async def _tell(self, name: str, send: Callable[[bytes], Any], body: bytes) -> None:
        for pause_s in (*PAUSES_S, None):
            try:
                await send(body)
                return
            except _UntoldError as error:
                line = f"nobody was told of a question by {name}: {shortened(error.message, _SHOWN)}"
                if not error.again or pause_s is None:
                    break
                await self._clock.sleep(pause_s)
            except _UncertainError as error:
                line = _uncertain(name, error.message)
                break
            except TimeoutError:
                line = _uncertain(name, f"it did not end in {TIMEOUT_S:g} s")
                break
        self._progress(line)


def _uncertain(name: str, problem: str) -> str:
    return f"somebody may have been told of a question by {name}, or nobody: {shortened(problem, _SHOWN)}"


def message_about(event: EventEnvelope, log: str) -> bytes:
    """Make the JSON about an `approval.requested`: what is asked, of whom, and how to answer it."""
    payload = event.payload
    question = payload["question"]
    if len(json.dumps(question)) > _LONGEST_QUESTION:
        question = shortened(question, 1_000) if isinstance(question, str) else summary_of(question)
    command = ["noesium", "approve", payload["run_id"], payload["approval_id"], "--log", log]
    message: Mapping[str, Any] = {
        "event": event.event_type,
        "run_id": payload["run_id"],
        "approval_id": payload["approval_id"],
        "agent_type": event.producer.agent_type,
        "node": payload["node"],
        "question": question,
        "approvers": payload.get("approvers") or [],
        "minimum": payload.get("minimum"),
        "asked_ms": event.timestamp_ms,
        "deadline_ms": payload.get("deadline_ms"),
        "log": log,
        "approve": shlex.join(command),
    }
    return json.dumps(message).encode()


def webhook_url(text: str) -> SplitResult:
    """Parse the URL of a webhook.

    Raises:
        ConfigError: it is not http or https, has a login, or no valid host or port. The text is not shown: it
            may be a secret.
    """
    problem = None
    try:
        url = urlsplit(text)
        if url.scheme not in ("http", "https") or not url.hostname:
            problem = "it is no http:// or https:// address"
        elif url.username is not None or url.password is not None:
            problem = "a login in it is not supported"
        elif not text.isascii() or any(not character.isprintable() or character == " " for character in text):
            problem = "it has characters that belong into no URL"
        else:
            _ = url.port
    except ValueError:
        problem = "its host or port is not valid"
    if problem is not None:
        raise ConfigError(
            f"The webhook for questions cannot be used: {problem}.",
            hint="Give approval_webhook (NOESIUM_APPROVAL_WEBHOOK) as https://HOST/PATH.",
        )
    return url


def _command(text: str) -> list[str]:
    """Split a command line, as a shell would, and check that its program is there."""
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise ConfigError(
            f"The command for questions cannot be read: {error}: {text[:_SHOWN]}", hint=_HOW
        ) from None
    if not argv or shutil.which(argv[0]) is None:
        raise ConfigError(
            f"The command for questions is not there: {argv[0] if argv else 'it is empty'}.",
            hint=_HOW,
        )
    return argv


class _Command(asyncio.SubprocessProtocol):
    """A running command: the beginning of its standard error, and when the process itself has ended.

    Not `Process.wait`: it also waits for the pipes, which a child in the background may hold for ever.
    """

    def __init__(self) -> None:
        self.said = b""
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the beginning of standard error."""
        self.said += data[: max(0, _MOST_SAID - len(self.said))]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note the end of standard error."""
        if fd == _STDERR:
            self.silent.set()

    def process_exited(self) -> None:
        """Note the end of the process."""
        self.exited.set()


async def _run(argv: list[str], body: bytes) -> None:
    """Run the command in a group of its own, and end the whole group if it is not done in time."""
    try:
        transport, command = await asyncio.get_running_loop().subprocess_exec(
            _Command, *argv, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise _UntoldError(str(error), again=True) from None
    stdin = transport.get_pipe_transport(0)
    assert isinstance(stdin, asyncio.WriteTransport), "it was asked for"
    try:
        stdin.write(body)
        stdin.close()  # once all is written; a command need not read it
        async with asyncio.timeout(TIMEOUT_S):
            await command.exited.wait()
        code = transport.get_returncode()
        if code != 0:
            raise _UncertainError(f"exit code {code}" + await _last_line(command))
    finally:
        if transport.get_returncode() is None:
            with suppress(ProcessLookupError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
        if stdin.get_write_buffer_size():
            stdin.abort()  # a child in the background holds it open, unread
        transport.close()


async def _last_line(command: _Command) -> str:
    with suppress(TimeoutError):  # a child in the background may hold it open
        async with asyncio.timeout(STDERR_S):
            await command.silent.wait()
    lines = command.said.decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


async def _post(url: SplitResult, body: bytes) -> None:
    """Post the body; only an answer of the class 2xx counts, and redirections are not followed.

    Raises:
        _UntoldError: nothing was written, or the server has refused it.
        _UncertainError, TimeoutError: the server may have dealt with it.
    """
    encrypted = url.scheme == "https"
    host, port = url.hostname or "", url.port or (443 if encrypted else 80)
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    head = (
        f"POST {target} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nUser-Agent: noesium\r\nConnection: close\r\n\r\n"
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=encrypted or None)
    except TimeoutError:
        raise _UntoldError(f"it did not take the connection in {TIMEOUT_S:g} s", again=True) from None
    except (OSError, ValueError) as error:  # refused, no such host, no trusted certificate
        raise _UntoldError(str(error) or type(error).__name__, again=True) from None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            writer.write(head.encode("ascii") + body)
            await writer.drain()
            _judge((await reader.readline()).split(maxsplit=2))
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        raise _UncertainError(str(error) or type(error).__name__) from None
    finally:
        writer.close()


def _judge(words: list[bytes]) -> None:
    """Check the first line of an answer."""
    status = words[1].decode(errors="replace") if len(words) > 1 else "nothing"
    kind = status[0] if len(status) == 3 else ""
    if kind == "2":
        return
    problem = f"it answered {status}"
    if status in _BUSY or kind == "4":
        raise _UntoldError(problem, again=status in _BUSY)
    raise _UncertainError(problem)
