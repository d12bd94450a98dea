"""A program as a sub-agent: real processes, most of which do what they should not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from noesium_stream.errors import (
    SubagentExitedError,
    SubagentProtocolError,
    SubagentStartError,
    SubagentStateError,
)
from noesium_stream.programs.program import Program
from noesium_stream.subagent.daemon import CliDaemon
from noesium_stream.subagent.lifecycle import Request, State
from noesium_stream.subagent.protocol import JsonLines
from tests.support.daemons import alive, asked, daemon, gone, pids_in, request
from tests.support.reading import PATIENCE_S


async def test_one_life_goes_through_all_states() -> None:
    one = daemon()
    states = [one.life.state]
    await one.spawn()
    states.append(one.life.state)
    await one.send(request())
    states.append(one.life.state)
    await one.receive()
    states.append(one.life.state)
    await one.terminate("it is enough")
    states.append(one.life.state)
    assert states == ["CREATED", "RUNNING", "BUSY", "IDLE", "TERMINATED"]
    assert one.life.reason == "it is enough"


async def test_the_program_reads_the_request_as_it_was_made() -> None:
    one = daemon("echo")
    await one.spawn()
    about = request(text="a\nb\u2028\x00", numbers=[1, None])
    assert Request(**await asked(one, about)) == about
    await one.terminate()


async def test_it_has_the_named_variables_alone_and_a_folder_that_is_removed_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("WANTED", "y")
    one = daemon(environment=("WANTED", "MISSING", "FIXED=a=b", "LC_ALL=C.UTF-8"))
    await one.spawn()
    found = await asked(one, request())
    assert found["env"] == {"WANTED": "y", "FIXED": "a=b", "LC_ALL": "C.UTF-8"}
    assert Path(found["cwd"]).parent == Path(tempfile.gettempdir())
    assert os.listdir(found["cwd"]) == []
    await one.terminate()
    assert not Path(found["cwd"]).exists()


async def test_it_runs_in_the_given_folder_which_stays(tmp_path: Path) -> None:
    one = daemon(folder=tmp_path)
    await one.spawn()
    assert (await asked(one, request()))["cwd"] == str(tmp_path)
    await one.terminate()
    assert tmp_path.exists()


@pytest.mark.parametrize("missing", ["no-such-program", "/no/such/program", __file__])
async def test_a_program_that_is_not_here_is_named(missing: str) -> None:
    one = CliDaemon(Program((missing,)), JsonLines(), "it of test")
    with pytest.raises(SubagentStartError, match=f"it of test cannot be started: {missing} is not on this"):
        await one.spawn()
    assert one.life.state is State.TERMINATED


async def test_a_folder_that_is_not_there_is_an_error_of_the_start(tmp_path: Path) -> None:
    one = daemon(folder=tmp_path / "gone")
    with pytest.raises(SubagentStartError, match=r"cannot be started: .*gone"):
        await one.spawn()


async def test_a_file_that_is_no_program_ends_at_once(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"\x7fELF no")
    file.chmod(0o755)
    one = CliDaemon(Program((str(file),)), JsonLines(), "text of test")
    await one.spawn()
    with pytest.raises(SubagentExitedError, match=r"ended with status 127 .*Exec format error"):
        await asked(one, request())
    await one.terminate(force=True)


FAULTS = {
    "endless": (SubagentProtocolError, "printed more than 1,000,000 bytes for one answer"),
    "huge": (SubagentProtocolError, "printed more than 1,000,000 bytes for one answer"),
    "not_json": (SubagentProtocolError, r"not JSON: .*: Traceback \(most recent call last\):"),
    "wrong_id": (SubagentProtocolError, "a request that it was not asked"),
    "exit": (SubagentExitedError, "ended with status 3 before it answered. On standard error: cannot go on"),
    "killed": (SubagentExitedError, "ended with status 139 before it answered."),
    "close": (SubagentExitedError, "closed its output before it answered."),
}


@pytest.mark.parametrize("how", FAULTS)
async def test_what_a_program_does_wrong_is_an_error_of_its_call_and_the_next_life_is_good(
    how: str, tmp_path: Path
) -> None:
    kind, message = FAULTS[how]
    one = daemon(pids=tmp_path / "pids")
    await one.spawn()
    with pytest.raises(kind, match=message) as raised:
        await asked(one, request(how=how))
    assert len(str(raised.value)) < 700
    assert one.life.state is State.BUSY
    await one.restart("it was wrong")
    await gone(pids_in(tmp_path / "pids")[:1])
    assert (await asked(one, request("r2")))["how"] == "good"
    await one.terminate()


async def test_an_answer_that_comes_twice_does_no_harm() -> None:
    one = daemon()
    await one.spawn()
    assert await asked(one, request("r1", how="twice")) == 1
    assert (await asked(one, request("r2")))["how"] == "good"
    await one.terminate()


async def test_an_error_of_the_program_is_an_answer_and_it_lives_on() -> None:
    one = daemon()
    await one.spawn()
    assert await asked(one, request("r1", how="error")) == "no such thing"
    assert one.life.state is State.IDLE
    assert (await asked(one, request("r2")))["how"] == "good"
    await one.terminate()


async def test_a_flood_of_errors_neither_blocks_it_nor_is_kept() -> None:
    one = daemon()
    await one.spawn()
    assert await asked(one, request(how="flood_errors")) == "done"
    await one.terminate()


async def test_a_program_that_never_reads_blocks_nobody_and_ends() -> None:
    one = daemon("never_reads")
    await one.spawn()
    await one.send(request(text="x" * 900_000))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await one.receive()
    await one.terminate("no answer", force=True)
    assert one.life.state is State.TERMINATED


async def test_it_is_not_terminated_in_the_middle_but_by_force() -> None:
    one = daemon()
    await one.spawn()
    await one.send(request(how="silent"))
    with pytest.raises(SubagentStateError, match="works at a request"):
        await one.terminate()
    assert await one.health_check() is False
    await one.terminate(force=True)


@pytest.mark.parametrize("force", [False, True])
async def test_one_that_ignores_sigterm_is_killed(tmp_path: Path, force: bool) -> None:
    one = daemon("stubborn", pids=tmp_path / "pids")
    await one.spawn()
    await asked(one, request())
    await one.terminate(force=force)
    assert not any(map(alive, pids_in(tmp_path / "pids")))


@pytest.mark.parametrize("ends", ["terminate", "then_exit"])
async def test_what_it_has_started_ends_with_it_even_in_a_session_of_its_own(
    tmp_path: Path, ends: str
) -> None:
    one = daemon(pids=tmp_path / "pids")
    await one.spawn()
    assert await asked(one, request(how="children")) == "forked"
    if ends == "then_exit":
        assert await asked(one, request("r2", how=ends)) == "done"
    await one.terminate()
    found = pids_in(tmp_path / "pids")
    assert len(found) == 3
    await gone(found)


@pytest.mark.parametrize(
    ("how", "reason"),
    [("then_exit", "ended with status 0"), ("then_talk", "gave an answer that is not JSON")],
)
async def test_one_that_ends_or_talks_while_it_is_idle_cannot_be_asked(how: str, reason: str) -> None:
    one = daemon()
    await one.spawn()
    assert await asked(one, request(how=how)) == "done"
    async with asyncio.timeout(PATIENCE_S):
        while await one.health_check():
            await asyncio.sleep(0.002)
    assert one.life.state is State.TERMINATED
    assert reason in one.life.reason or one.life.reason == "closed its output"
    with pytest.raises(SubagentExitedError, match="before it was asked"):
        await one.send(request("r2"))
    await one.spawn()
    assert (await asked(one, request("r3")))["how"] == "good"
    await one.terminate()


async def test_a_cancelled_termination_ends_it_all_the_same(tmp_path: Path) -> None:
    one = daemon("stubborn", pids=tmp_path / "pids")
    await one.spawn()
    await asked(one, request())
    ending = asyncio.create_task(one.terminate())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await gone(pids_in(tmp_path / "pids"))
    await one.terminate()


async def test_lines_of_the_life_before_are_not_heard_in_the_next_one() -> None:
    one = daemon()
    await one.spawn()
    await one.send(request("r1", how="endless"))
    await one.restart("it takes too long")
    assert (await asked(one, request("r2")))["how"] == "good"
    await one.terminate()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the program of its guard's death")
async def test_a_guard_that_is_killed_takes_its_program_along() -> None:
    one = daemon()
    await one.spawn()
    found = await asked(one, request())
    pid, folder = found["pid"], found["cwd"]
    guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guard, signal.SIGKILL)
    await gone([pid, guard])
    async with asyncio.timeout(PATIENCE_S):
        while await one.health_check():
            await asyncio.sleep(0.002)
    assert not Path(folder).exists()
    await one.spawn()
    assert (await asked(one, request("r2")))["how"] == "good"
    await one.terminate()
