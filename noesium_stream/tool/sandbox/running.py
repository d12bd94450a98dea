"""`Running`: a program in a sandbox, watched until it has ended or reaches a limit.

The kernel's own limits (`setrlimit`) count per process, and some not at all for the user root. So what a
program uses with all that it has started is read every 10 to 50 ms, and the whole of it is killed at a limit.
How many processes root may have is bounded by a group, where that is possible (`process_group`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final

from noesium_stream.errors import SandboxError
from noesium_stream.tool.sandbox.process_group import ProcessGroup
from noesium_stream.tool.sandbox.result import Ended, SandboxResult
from noesium_stream.tool.sandbox.usage import Usage, children_of, tree_of, usage_of
from noesium_stream.tool.sandbox.walled import WalledCommand
from noesium_stream.tool.sandbox.walls import Limits

_FIRST_LOOK_S: Final = 0.01
_LOOK_S: Final = 0.05
_CHUNK: Final = 1 << 16
_FLOOD: Final = 16
"""A program that writes this many times the bytes that are kept is killed."""
_BUILDING_S: Final = 20
OWN_PROCESSES: Final = 3
"""Processes of the sandbox itself that count as the program's."""
_SIGNALS: Final = range(129, 193)


class Running:
    """A program in a sandbox.

    Attributes:
        process: what the sandbox was started by, with pipes to the program.
        over: the limit that it has reached; None: none.
        group: that all of it is in; None: there is none.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        limits: Limits,
        kill: Callable[[], None],
        inside: Sequence[int] = (),
        look_s: float = _LOOK_S,
        group: ProcessGroup | None = None,
    ) -> None:
        """Take a process that was just started.

        Args:
            process: with three pipes.
            limits: what it and its descendants may use.
            kill: kills all of them, and returns at once.
            inside: pidfds, closed by `end`, of processes that the kernel lets end only after all that is
                inside; `process` itself may end before them.
            look_s: seconds between two looks at what it uses.
            group: that all of it is in, removed by `end`.
        """
        self.process = process
        self.over: Ended | None = None
        self._limits = limits
        self._kill = kill
        self._inside = tuple(inside)
        self.group = group
        self._look_s = look_s
        self._begun = time.monotonic()

    def stop(self, why: Ended) -> None:
        """Kill it and all that it has started, because of a limit."""
        if self.process.returncode is None:
            self.over = self.over or why
            self._kill()

    async def end(self) -> None:
        """Kill what is left of it, and return when nothing is."""
        if self.process.returncode is None:
            self._kill()
        await self.process.wait()
        handles, self._inside = self._inside, ()
        for handle in handles:
            await _killed(handle)
        if self.group is not None:
            self.group.remove()

    async def watch(self) -> None:
        """Kill it at the first limit that it reaches; returns then."""
        pause = _FIRST_LOOK_S
        while self.over is None:
            left = self._limits.wall_s - (time.monotonic() - self._begun)
            await asyncio.sleep(max(0.0, min(pause, left)))
            pause = min(self._look_s, 2 * pause)
            reached = self._reached()
            if reached is not None:
                self.stop(reached)

    def _reached(self) -> Ended | None:
        limits = self._limits
        if time.monotonic() - self._begun >= limits.wall_s:
            return Ended.TIMEOUT
        tree = tree_of(self.process.pid, limits.processes)
        if len(tree) > limits.processes:
            return Ended.PROCESSES
        return limit_of(usage_of(tree), limits)

    async def result(self, stdin: bytes) -> SandboxResult:
        """Feed it, read all that it writes, and wait for its end."""
        process = self.process
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.create_task(self._feed(stdin))
        try:
            (stdout, stdout_cut), (stderr, stderr_cut), code = await asyncio.gather(
                self._read(process.stdout), self._read(process.stderr), process.wait()
            )
        finally:
            feeding.cancel()
        exit_code = code if code >= 0 else 128 - code
        ended = Ended.SIGNAL if exit_code in _SIGNALS else Ended.EXIT
        return SandboxResult(
            exit_code=exit_code,
            stdout=stdout,
            stderr=stderr,
            stdout_cut=stdout_cut,
            stderr_cut=stderr_cut,
            duration_s=time.monotonic() - self._begun,
            ended=self.over or ended,
        )

    async def _feed(self, stdin: bytes) -> None:
        pipe = self.process.stdin
        assert pipe is not None
        with contextlib.suppress(ConnectionError):  # it need not read
            if stdin:
                pipe.write(stdin)
                await pipe.drain()
            pipe.close()

    async def _read(self, pipe: asyncio.StreamReader) -> tuple[bytes, int]:
        kept, cut = bytearray(), 0
        limit = self._limits.output_bytes
        while chunk := await pipe.read(_CHUNK):
            part = chunk[: limit - len(kept)]
            kept += part
            cut += len(chunk) - len(part)
            if cut > _FLOOD * limit:
                self.stop(Ended.OUTPUT)
        return bytes(kept), cut


def limit_of(usage: Usage, limits: Limits) -> Ended | None:
    """The first limit that is exceeded; None: none is."""
    if usage.processes > limits.processes:
        return Ended.PROCESSES
    if usage.memory_bytes > limits.memory_bytes:
        return Ended.MEMORY
    if usage.written_bytes > limits.disk_bytes:
        return Ended.DISK
    return Ended.CPU if usage.cpu_s > limits.cpu_s else None


def handles_of_children(pid: int) -> list[int]:
    """Pidfds of the children of a process that has not been waited for."""
    handles = []
    for child in children_of(pid):
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(child)
            if child in children_of(pid):  # the number may have gone to another process meanwhile
                handles.append(handle)
            else:
                os.close(handle)
    return handles


def kill_children(pid: int) -> bool:
    """Send SIGKILL to the children of a process that has not been waited for; False: it has none."""
    handles = handles_of_children(pid)
    for handle in handles:
        _kill_by(handle)
        os.close(handle)
    return bool(handles)


def _kill_by(handle: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)


async def _killed(handle: int) -> None:
    """Kill the process of a pidfd, return when it has ended, and close the pidfd."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        _kill_by(handle)
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def kill_process(process: asyncio.subprocess.Process) -> None:
    """Send SIGKILL to a process that may have ended.

    `process.kill()` waits for the process, too, and can take its exit code away from asyncio.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def spawned(command: WalledCommand) -> asyncio.subprocess.Process:
    """Start a process with three pipes, in a session of its own.

    Raises:
        SandboxError: it cannot be started.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *command.words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=dict(command.environment),
            pass_fds=command.fds,
            start_new_session=True,
            cwd="/",
        )
    except (OSError, ValueError) as error:
        hint = None
        if isinstance(error, PermissionError):
            hint = f"Let this user execute {command.words[0]}, and enter each folder above it."
        raise SandboxError(f"{command.words[0]} cannot be started: {error}.", hint=hint) from None


async def released(process: asyncio.subprocess.Process, sandbox: str, limits: Limits) -> ProcessGroup | None:
    """Wait until the walls around a program stand, which it says by one byte, and let it go by one line.

    Args:
        process: that builds the walls.
        sandbox: what it is, for errors.
        limits: of the program, whose group is returned, if it is in one.

    Raises:
        SandboxError: they cannot be built. Nothing was executed.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(_BUILDING_S):
            await process.stdout.readexactly(1)
            group = _grouped(process, limits)
            process.stdin.write(b"\n")
            return group
    except asyncio.IncompleteReadError:
        said = await process.stderr.read(_CHUNK)
    except TimeoutError:
        said = f"not within {_BUILDING_S} s".encode()
    kill_process(process)
    await process.wait()
    raise SandboxError(
        f"{sandbox} cannot build the walls: {first_line(said)}.",
        hint="Nothing was executed. Try `bwrap --unshare-all --ro-bind / / true`.",
    )


def _grouped(process: asyncio.subprocess.Process, limits: Limits) -> ProcessGroup | None:
    # With the process itself: one that is too many for the limit is seen, too.
    group = ProcessGroup.make(limits.processes + OWN_PROCESSES + 1)
    if group is not None:
        with contextlib.suppress(OSError):  # then it is only looked at
            group.take([process.pid, *tree_of(process.pid, limits.processes)])
    return group


@contextlib.asynccontextmanager
async def supervised(starting: Coroutine[Any, Any, Running]) -> AsyncIterator[Running]:
    """Watch a program that is being started, and end all of it when the context is left."""
    task = asyncio.ensure_future(starting)
    try:
        running = await asyncio.shield(task)
    except asyncio.CancelledError:
        # A program whose start is cancelled must not run on.
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            await task.result().end()
        raise
    watching = asyncio.create_task(running.watch())
    try:
        yield running
    finally:
        watching.cancel()
        await asyncio.shield(running.end())


def first_line(said: bytes) -> str:
    """The first line of what a program said, at most 300 characters, for an error message."""
    return (said.decode(errors="replace").strip().splitlines() or ["it says nothing"])[0][:300].rstrip(".")
