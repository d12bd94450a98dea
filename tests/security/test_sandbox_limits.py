"""Programs in a sandbox try to exceed their limits, and to outlive their call."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from noesium_stream.tool.sandbox import Ended, Limits, Sandbox, Walls
from noesium_stream.tool.sandbox.running import Running
from tests.support import daemons
from tests.support.reading import PATIENCE_S, eventually
from tests.support.sandboxes import alive, python, sandbox_named, shell

MIB = 2**20
WHOLE = ("**",)


@pytest.fixture(params=["bubblewrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return sandbox_named(request.param)


@pytest.fixture
def mark() -> str:
    """A text that no other process has among its arguments."""
    return f"mark-{uuid.uuid4().hex}"


async def test_a_fork_bomb_ends(sandbox: Sandbox, tmp_path: Path) -> None:
    # One that stops after some hundred processes: where nothing but looking bounds those of root, one without
    # an end takes all process numbers of the machine, and others that need one fail.
    bomb = "f() { [ $1 = 0 ] || { f $(($1-1)) | f $(($1-1)) & }; sleep 1; }; f 8; wait"
    result = await shell(sandbox, tmp_path, bomb, limits=Limits(wall_s=PATIENCE_S, processes=20))
    assert result.ended in (Ended.PROCESSES, Ended.EXIT, Ended.SIGNAL), "and not by the clock"


async def test_memory_is_bounded(sandbox: Sandbox, tmp_path: Path) -> None:
    limits = Limits(wall_s=PATIENCE_S, memory_bytes=64 * MIB)
    code = "import time\nx = b'x' * (200 << 20)\ntime.sleep(30)"
    result = await python(sandbox, tmp_path, code, limits=limits)
    assert result.ended in (Ended.MEMORY, Ended.SIGNAL) or b"MemoryError" in result.stderr
    assert result.exit_code != 0


async def test_memory_of_many_processes_is_bounded(sandbox: Sandbox, tmp_path: Path) -> None:
    limits = Limits(wall_s=PATIENCE_S, memory_bytes=64 * MIB)
    code = "import os, time\nany(not os.fork() for _ in range(8))\nx = b'x' * (20 << 20)\ntime.sleep(30)"
    result = await python(sandbox, tmp_path, code, limits=limits)
    assert result.ended in (Ended.MEMORY, Ended.SIGNAL) or b"MemoryError" in result.stderr


async def test_output_is_cut_and_counted(sandbox: Sandbox, tmp_path: Path) -> None:
    limits = Limits(wall_s=PATIENCE_S, output_bytes=1000)
    result = await shell(sandbox, tmp_path, "head -c 5000 /dev/zero; echo e >&2", limits=limits)
    assert (len(result.stdout), result.stdout_cut, result.stderr) == (1000, 4000, b"e\n")
    assert result.ended == Ended.EXIT


async def test_endless_output_ends(sandbox: Sandbox, tmp_path: Path) -> None:
    limits = Limits(wall_s=PATIENCE_S, output_bytes=10_000)
    result = await shell(sandbox, tmp_path, "yes", limits=limits)
    assert (result.ended, len(result.stdout)) == (Ended.OUTPUT, 10_000)


async def test_a_large_file_ends(sandbox: Sandbox, tmp_path: Path) -> None:
    limits = Limits(wall_s=PATIENCE_S, file_bytes=MIB)
    await shell(sandbox, tmp_path, "head -c 9000000 /dev/zero > a", limits=limits, writable=WHOLE)
    assert (tmp_path / "a").stat().st_size <= MIB


async def test_many_files_do_not_fill_the_disk(sandbox: Sandbox, tmp_path: Path) -> None:
    limits = Limits(wall_s=PATIENCE_S, file_bytes=4 * MIB, disk_bytes=20 * MIB)
    script = "i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero > f$i; done"
    result = await shell(sandbox, tmp_path, script, limits=limits, writable=WHOLE)
    assert result.ended == Ended.DISK


async def test_scratch_space_is_bounded(tmp_path: Path) -> None:
    limits = Limits(wall_s=PATIENCE_S, scratch_bytes=MIB)
    script = "for d in /tmp /dev/shm; do head -c 9000000 /dev/zero > $d/a; stat -c %s $d/a; done"
    result = await shell(sandbox_named("bubblewrap"), tmp_path, script, limits=limits)
    assert all(int(size) <= MIB for size in result.stdout.split())


async def test_cpu_time_is_bounded(sandbox: Sandbox, tmp_path: Path) -> None:
    result = await shell(
        sandbox, tmp_path, "while :; do :; done", limits=Limits(wall_s=PATIENCE_S, cpu_s=0.3)
    )
    assert result.ended == Ended.CPU


async def test_a_program_that_ignores_signals_ends_in_time(
    sandbox: Sandbox, tmp_path: Path, mark: str
) -> None:
    script = f"trap '' TERM INT HUP; : {mark}; while :; do sleep 1; done"
    result = await shell(sandbox, tmp_path, script, limits=Limits(wall_s=0.3))
    assert result.ended == Ended.TIMEOUT
    assert alive(mark) == []


DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for fd in (0, 1, 2): os.close(fd)
os.execvp("sleep", [sys.argv[-1], "1000"])
"""


async def test_a_daemon_does_not_outlive_its_program(sandbox: Sandbox, tmp_path: Path, mark: str) -> None:
    code = DAEMON.replace("sys.argv[-1]", repr(mark))
    result = await python(sandbox, tmp_path, code)
    assert result.exit_code == 0
    assert alive(mark) == []


async def test_the_end_of_a_program_waits_for_what_it_has_left_behind() -> None:
    """bwrap has ended before the kernel has killed a daemon inside."""
    pipe = asyncio.subprocess.PIPE
    outer = await asyncio.create_subprocess_exec("true", stdin=pipe, stdout=pipe, stderr=pipe)
    left_behind = await asyncio.create_subprocess_exec("sleep", "1000")
    await outer.wait()
    running = Running(outer, Limits(), lambda: None, [os.pidfd_open(left_behind.pid)])
    await running.end()
    assert daemons.alive(left_behind.pid) is False
    await running.end()
    assert await left_behind.wait() == -signal.SIGKILL


async def test_a_daemon_does_not_outlive_a_limit(sandbox: Sandbox, tmp_path: Path, mark: str) -> None:
    code = DAEMON.replace("sys.argv[-1]", repr(mark)).replace("os._exit(0)", "time.sleep(99)")
    result = await python(sandbox, tmp_path, code, limits=Limits(wall_s=0.5))
    assert result.ended == Ended.TIMEOUT
    assert alive(mark) == []


async def test_a_cancelled_call_leaves_no_process(sandbox: Sandbox, tmp_path: Path, mark: str) -> None:
    walls = Walls(tmp_path, WHOLE, limits=Limits(wall_s=PATIENCE_S))
    running = asyncio.create_task(
        sandbox.run(["/bin/sh", "-c", f": {mark}; setsid sleep 50 & sleep 50"], walls)
    )
    await eventually(lambda: len(alive(mark)) > 0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(mark) == []


async def test_many_cancelled_starts_leave_no_process(sandbox: Sandbox, tmp_path: Path, mark: str) -> None:
    walls = Walls(tmp_path, WHOLE, limits=Limits(wall_s=PATIENCE_S))
    for turns in range(0, 60, 6):
        running = asyncio.create_task(sandbox.run(["/bin/sh", "-c", f": {mark}; sleep 50"], walls))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert alive(mark) == []


_WORKER = """
import asyncio, sys
from pathlib import Path
from noesium_stream.tool.sandbox import Limits, Walls, find_sandbox

async def main(name, folder, mark):
    walls = Walls(Path(folder), ("**",), limits=Limits(wall_s=600))
    await find_sandbox(name).run(["/bin/sh", "-c", f": {mark}; setsid sleep 500 & sleep 500; :"], walls)

asyncio.run(main(*sys.argv[1:4]))
"""


async def test_a_killed_worker_leaves_no_process(sandbox: Sandbox, tmp_path: Path, mark: str) -> None:
    worker = subprocess.Popen([sys.executable, "-c", _WORKER, sandbox.name, str(tmp_path), mark])
    try:
        await eventually(lambda: len(alive(mark)) > 1)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        await eventually(lambda: alive(mark) == [])
    finally:
        worker.kill()
        worker.wait()
