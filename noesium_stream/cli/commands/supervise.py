"""A command in a child, which is started again after a kill or a fault: `noesium worker --restart`.

This process waits for the child's end. A child that was killed, or ended by a fault or by a log that is away,
is started again: at once if it had worked for a while, else after a pause that doubles. Its partitions are
not waited for (`worker.ownership.member_marks`). A user's mistake (exit code 2) and an end in order are ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import create_subprocess_exec
from collections.abc import Sequence
from typing import Final

from noesium_stream.cli.exits import INTERRUPTED, OK, USAGE
from noesium_stream.cli.output import note
from noesium_stream.clock import SystemClock

FLAG: Final = "--restart"
_STEADY_S: Final = 10.0
"""A child that lived for this long had begun its work."""

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_FINAL: Final = frozenset({OK, USAGE, INTERRUPTED})


async def supervise(words: Sequence[str]) -> int:
    """Run a command of this program until it ends by itself or is told to; return its exit code.

    SIGTERM and SIGINT are handed on to the child, which is not started again after them.

    Args:
        words: of the command, without the program's name, as in `sys.argv[1:]`; `--restart` is left out.
    """
    command = [sys.executable, "-m", "noesium_stream.cli", *(word for word in words if word != FLAG)]
    clock, stop = SystemClock(), asyncio.Event()
    child: asyncio.subprocess.Process | None = None

    def told(number: signal.Signals) -> None:
        stop.set()
        if child is not None and child.returncode is None:
            child.send_signal(number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
    pause_s: float | None = None
    while True:
        began_s = clock.monotonic()
        # A session of its own: Ctrl-C reaches the child once, by way of this process.
        child = await create_subprocess_exec(*command, start_new_session=True)
        code = await child.wait()
        if code in _FINAL or stop.is_set():
            return code if code >= 0 else 128 - code
        pause_s = pause_after(clock.monotonic() - began_s, pause_s)
        after = f" in {pause_s:g} s" if pause_s else ""
        note(f"the worker's process {child.pid} {_ended(code)}: it is started again{after}")
        try:
            async with asyncio.timeout(pause_s):
                await stop.wait()
        except TimeoutError:
            continue
        return OK


def pause_after(lived_s: float, before_s: float | None) -> float:
    """Seconds to wait before a child is started again.

    Args:
        lived_s: how long it lived.
        before_s: how long was waited before it was started; None: it was the first one.
    """
    if lived_s >= _STEADY_S or before_s is None:
        return 0.0
    return min(max(_FIRST_PAUSE_S, 2 * before_s), _LONGEST_PAUSE_S)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
