"""Transport to an MCP server that is a program of this machine: guarded, with bounded messages."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from noesium_stream.errors import ToolServerError, brief
from noesium_stream.escapes import escaped
from noesium_stream.programs.launch import GuardLine, launch
from noesium_stream.programs.program import Program
from noesium_stream.redaction import without
from noesium_stream.tool.mcp.screen import Streams
from noesium_stream.tool.mcp.walls import LOOK_S, ServerSandbox, walled_program
from noesium_stream.tool.sandbox.running import Running, released

CLOSE_S: Final = 2.0
"""How long a server may take to end when its input is closed, in seconds (MCP, lifecycle)."""
TERMINATE_S: Final = 1.0
_PREFIX: Final = "noesium-mcp-"
_LINES: Final = 50
"""Lines of standard error that are logged of one process; the rest is only counted."""
_WIDTH: Final = 500
_TAIL: Final = 500
_PAUSE_S: Final = 0.01
"""Between two reads of standard error that is not logged any more: a flood is slowed down."""
_LOGGER: Final = logging.getLogger(__name__)


class StdioTransport:
    """One process of a server; enter it once.

    Attributes:
        pid: of the process's guard; None: it was not started.
    """

    def __init__(self, program: Program, who: str, sandbox: ServerSandbox | None = None) -> None:
        self._program = program
        self._who = who
        self._sandbox = sandbox
        self._running: Running | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._guard: GuardLine | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._logged = 0
        self._last = b""
        self._wrong = ""
        self._secrets: dict[str, str] = {}

    @property
    def pid(self) -> int | None:
        """See the class."""
        return None if self._process is None else self._process.pid

    def said(self) -> str:
        """The end of what it wrote to standard error, or did wrong, for people."""
        tail = self._shown(self._last)
        if self._running is not None and self._running.over is not None:
            return f" It was ended at its limit: {self._running.over.value}."
        if self._wrong:
            return f" It sent {self._wrong}."
        return f" On standard error: {tail}" if tail else ""

    async def __aenter__(self) -> Streams:
        """Start the server.

        Raises:
            ToolServerError: it cannot be started.
            SandboxError: its walls cannot be built; nothing was executed.
        """
        program = self._program
        path = program.path(os.environ)
        if path is None:
            raise ToolServerError(program.not_here(self._who), hint="Install it, or give its path.")
        self._secrets = program.variables(os.environ)
        try:
            if self._sandbox is None:
                self._process, self._guard = await launch(program, path, self._spawn, prefix=_PREFIX)
            else:
                await self._launch_walled(self._sandbox, path)
        except OSError as error:
            raise ToolServerError(f"{self._who} cannot be started: {brief(error)}") from error
        inbound, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outbound = anyio.create_memory_object_stream[SessionMessage](0)
        self._tasks = [
            asyncio.create_task(self._read(inbound)),
            asyncio.create_task(self._write(outbound, inbound)),
            asyncio.create_task(self._listen()),
        ]
        if self._running is not None:
            self._tasks.append(asyncio.create_task(self._running.watch()))
        return read, write

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the server and all that it has started; a cancelled caller does not keep it alive."""
        await asyncio.shield(asyncio.ensure_future(self._end()))

    async def _launch_walled(self, walls: ServerSandbox, path: str) -> None:
        """Start the server inside walls, and let it go when they stand."""
        walls.check_visible(path, self._who)
        sandbox = await asyncio.to_thread(walls.find)
        with ExitStack() as opened:
            made = walls.walls(self._program, self._secrets)
            program, path, fds = walled_program(sandbox, self._program, path, made, opened)
            spawn = partial(self._spawn, inherited=fds)
            process, guard = await launch(program, path, spawn, prefix=_PREFIX)
        try:
            group = await released(process, sandbox.name, walls.limits)
        except BaseException:
            guard.kill()
            await guard.clear()
            raise
        self._process, self._guard = process, guard
        self._running = Running(process, walls.limits, guard.kill, look_s=LOOK_S, group=group)

    async def _spawn(
        self, *words: str, inherited: tuple[int, ...] = (), **surroundings: Any
    ) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        surroundings["pass_fds"] = (*surroundings["pass_fds"], *inherited)
        return await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, limit=self._program.max_answer, **surroundings
        )

    async def _end(self) -> None:
        process, guard = self._process, self._guard
        if process is None or guard is None:
            return
        try:
            if process.stdin is not None:
                process.stdin.close()
            if not await _ended(process, CLOSE_S):
                guard.ask_to_end()
                await _ended(process, TERMINATE_S)
        finally:
            guard.kill()
        await _ended(process, TERMINATE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await guard.clear()
        if self._running is not None and self._running.group is not None:
            self._running.group.remove()

    async def _read(self, inbound: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Hand on its messages; behind a line that is too long, or the end, there are none."""
        stdout = self._process.stdout if self._process is not None else None
        assert stdout is not None
        strange = 0
        async with inbound:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                while line := await self._line(stdout):
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        strange += 1
                        if strange == 1 and line.strip():
                            self._log(f"printed what is no message of MCP: {self._shown(line)}")
                        continue
                    await inbound.send(SessionMessage(message))
        if self._guard is not None:
            # Nothing more can be read: a process that lives on would do so unheard.
            self._guard.ask_to_end()
        with suppress(ValueError, OSError):
            while await stdout.read(65_536):
                pass

    async def _line(self, stdout: asyncio.StreamReader) -> bytes:
        try:
            return await stdout.readline()
        except ValueError:
            self._wrong = f"a message of more than {self._program.max_answer:,} bytes"
            self._log(f"sent {self._wrong}, and is ended")
            return b""

    async def _write(
        self,
        outbound: MemoryObjectReceiveStream[SessionMessage],
        inbound: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        stdin = self._process.stdin if self._process is not None else None
        assert stdin is not None
        async with outbound:
            try:
                async for item in outbound:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(text.encode() + b"\n")
                    await stdin.drain()
            except OSError:
                await inbound.aclose()  # it does not read any more: all that wait have to know

    async def _listen(self) -> None:
        """Log the first lines of its standard error; read on, so that it never waits for a reader."""
        stderr = self._process.stderr if self._process is not None else None
        assert stderr is not None
        while data := await stderr.read(65_536):
            self._last = data[-_TAIL:]
            for line in data.splitlines():
                if line.strip() and self._logged <= _LINES:
                    self._log(self._shown(line))
            if self._logged > _LINES:
                await asyncio.sleep(_PAUSE_S)

    def _shown(self, line: bytes) -> str:
        return escaped(without(line[:_WIDTH].decode(errors="replace").strip(), self._secrets))

    def _log(self, text: str) -> None:
        self._logged += 1
        if self._logged <= _LINES:
            _LOGGER.info("%s: %s", self._who, text)
        elif self._logged == _LINES + 1:
            _LOGGER.info("%s: it says more, which is not logged", self._who)


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait for the end of a process, or for some seconds.

    Its pipes may outlive it, and `Process.wait` waits for them: so they are left to their own tasks.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()
    return process.returncode is not None
