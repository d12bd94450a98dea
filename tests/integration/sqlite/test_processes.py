"""A long-lived process and others that come and go on one existing, quiet SQLite log.

POSIX drops all locks that a process has on a file when it closes any descriptor of it: who opens the
database besides SQLite loses its lock, and the next one to leave takes the write-ahead log away.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream.log import open_log
from tests.support.events import catalogue, counted
from tests.support.reading import numbers, stored

COME_AND_GO = """
import asyncio, sys
from noesium_stream.log import open_log
async def main():
    log = await open_log(sys.argv[1])
    print(await log.last_offset("noesium.events.demo"))
    await log.close()
asyncio.run(main())
"""


async def somebody(url: str) -> int:
    """What a process of its own sees, which opens the log and closes it."""
    command = [sys.executable, "-c", COME_AND_GO, url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("opened", [1, 2])
async def test_a_process_that_stays_is_not_cut_off_by_one_that_leaves(tmp_path: Path, opened: int) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    first = await open_log(url, catalogue=catalogue())
    await first.append([counted(0, "k")])
    await first.close()

    staying = [await open_log(url, catalogue=catalogue()) for _ in range(opened)]
    for number in range(1, 4):
        assert await somebody(url) == number
        for log in staying[1:]:
            await log.end("noesium.events.demo")
        await staying[0].append([counted(number, "k")])
        wal = f"{tmp_path}/log.db-wal"
        held = [os.stat(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is(fd, wal)]
        assert {file.st_ino for file in held} == {os.stat(wal).st_ino}
    assert await somebody(url) == 4
    assert numbers(await stored(staying[-1], "noesium.events.demo")) == [0, 1, 2, 3]
    for log in staying:
        await log.close()


def _is(fd: str, path: str) -> bool:
    """Whether a descriptor is of this file, or of one that was there before it."""
    try:
        return path in os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return False
