"""Starting a program behind its guard (`guard.py`)."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from noesium_stream.programs import guard
from noesium_stream.programs.program import Program

T = TypeVar("T")

_GUARD: Final = str(Path(guard.__file__).resolve())


class GuardLine:
    """The pipe to the guard of one program, and the folder that ends with the program."""

    def __init__(self, control: int, own: str) -> None:
        self._control: int | None = control
        self._own = own

    def ask_to_end(self) -> None:
        """Have the guard send SIGTERM to all that the program has started."""
        if self._control is not None:
            with suppress(BrokenPipeError):  # the guard has ended, and its program with it
                os.write(self._control, b"T")

    def kill(self) -> None:
        """Have the guard send SIGKILL to all that the program has started."""
        control, self._control = self._control, None
        if control is not None:
            os.close(control)

    async def clear(self) -> None:
        """Remove the program's own folder; the guard does it, unless it was killed."""
        if self._own:
            await asyncio.to_thread(shutil.rmtree, self._own, ignore_errors=True)


async def launch(
    program: Program, path: str, spawn: Callable[..., Awaitable[T]], *, prefix: str
) -> tuple[T, GuardLine]:
    """Start a program in a process group of its own, with its own variables alone.

    Args:
        program: what is started.
        path: where it is (`Program.path`).
        spawn: starts a process: takes its words, and the keywords `cwd`, `env`, `pass_fds` and
            `start_new_session` of `subprocess.Popen`.
        prefix: how the name of its own folder begins, if it has one.

    Raises:
        OSError: the process cannot be started.
    """
    variables = program.variables(os.environ)
    own = "" if program.folder else tempfile.mkdtemp(prefix=prefix)
    reads, control = os.pipe()
    line = GuardLine(control, own)
    words = [sys.executable, "-I", "-S", _GUARD, str(reads), own, ",".join(variables), path]
    surroundings: dict[str, Any] = {
        "cwd": program.folder or own,
        "env": variables,
        "pass_fds": (reads,),
        "start_new_session": True,
    }
    try:
        return await spawn(*words, *program.command[1:], **surroundings), line
    except BaseException:
        line.kill()
        if own:
            shutil.rmtree(own, ignore_errors=True)
        raise
    finally:
        os.close(reads)
