"""An agent that has a program: what is offered, what a run of it does, and what a person is asked."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from noesium_stream import TextLines, cli_subagent
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import ConfigError, RunCancelledError, RunFailedError
from noesium_stream.event.standard import Capability, CapabilityType, SideEffectClass
from noesium_stream.testing import Rehearsal
from tests.support.daemons import SCRIPT, alive, gone, pids_in
from tests.support.reading import PATIENCE_S
from tests.support.subagents import AT_ONCE, Play, again, playing, program, task


def moves(events: list[Any]) -> list[tuple[str, str, str]]:
    states = [event.payload for event in events if event.event_type == "subagent.state"]
    return [(one["previous"], one["state"], one["reason"]) for one in states]


def test_it_offers_its_functions_as_capabilities_of_an_external_program() -> None:
    first, second = program(offers=[task, again]).capabilities
    assert (first.id, first.description) == ("test.task", "What a test asks for.")
    assert first.capability_type is CapabilityType.EXTERNAL_CLI_SUBAGENT
    assert first.side_effects is SideEffectClass.EXTERNAL
    assert first.input_schema["properties"]["how"]["default"] == "good"
    assert (second.id, second.side_effects) == ("test.again", SideEffectClass.IDEMPOTENT)


def test_schemas_may_be_written_by_hand() -> None:
    offered = Capability(id="test.raw", input_schema={}, output_schema={"type": "integer"})
    (found,) = program(offers=[offered]).capabilities
    assert found == offered.model_copy(
        update={"capability_type": CapabilityType.EXTERNAL_CLI_SUBAGENT},
    )


def test_the_class_belongs_to_the_module_that_makes_it() -> None:
    assert cli_subagent("here", ["cat"], [task]).__module__ == __name__


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"command": "jq -c ."}, "There is no shell"),
        ({"command": []}, "The command of the agent test is"),
        ({"command": ["jq", "\0"]}, "a NUL"),
        ({"environment": ["=x"]}, "names the variable"),
        ({"capabilities": []}, "offers nothing"),
        ({"capabilities": [str.upper]}, "which is no capability"),
        ({"capabilities": [task, task]}, r"offers test\.task twice"),
        ({"agent_type": "No Name"}, "No Name"),
        ({"session": "who"}, "names the session by the field 'who', which the input of test.task does not"),
        ({"protocol": TextLines("{x} {how}")}, "the line has the field 'x'"),
        ({"places": 0}, "places of test is 0"),
        ({"waiting": 0}, "waiting of test is 0"),
        ({"timeout": 0}, "timeout"),
        ({"max_answer": 0}, "max_answer"),
    ],
)
def test_a_wrong_declaration_is_refused_when_it_is_made(wrong: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"agent_type": "test", "command": ["cat"], "capabilities": [task], **wrong}
    with pytest.raises(ConfigError, match=why):
        cli_subagent(given.pop("agent_type"), given.pop("command"), given.pop("capabilities"), **given)


def test_a_wrong_input_is_refused_before_a_run_begins() -> None:
    program().check_input({"how": "good"})
    with pytest.raises(ConfigError, match=r"test\.task does not take these arguments: hwo"):
        program().check_input({"hwo": "good"})


async def test_a_worker_does_not_start_without_the_program(tmp_path: Path) -> None:
    missing = cli_subagent("test", ["no-such-program"], [task])
    with pytest.raises(
        ConfigError, match="no-such-program of test cannot be started: no-such-program is not on this"
    ):
        async with playing(missing, tmp_path):
            pass


async def test_all_calls_of_a_tree_of_runs_meet_one_process_and_another_tree_another(tmp_path: Path) -> None:
    async with playing(program(), tmp_path) as play:
        first, second = await play.replies({}, {})
        (other,) = await play.replies({})
    assert first["pid"] == second["pid"] != other["pid"]


async def test_a_field_of_the_input_may_name_the_session(tmp_path: Path) -> None:
    async with playing(program(session="session"), tmp_path) as play:
        (ada,), (bob,), (again,) = [await play.replies({"session": name}) for name in ("ada", "bob", "ada")]
        assert ada["pid"] == again["pid"] != bob["pid"]
        with pytest.raises(RunFailedError, match="takes its session from 'session', which is a text of 1"):
            await play.result(session="")


async def test_a_request_has_the_key_of_its_call_and_says_of_the_run_what_a_program_may_want(
    tmp_path: Path,
) -> None:
    async with playing(program("echo", timeout=20), tmp_path) as play:
        run = await play.client.start("test", {"how": "echo"})
        request = await run.result(timeout=PATIENCE_S)
        events = await play.events(run)
    (asked,) = [e.payload for e in events if e.payload.get("name") == "test.task"]
    assert request["request_id"] == asked["idempotency_key"]
    assert (request["task"], request["payload"]) == ("test.task", {"how": "echo"})
    assert request["context"] == {
        "run_id": run.id,
        "session": run.id,
        "correlation_id": run.id,
        "trace_id": events[-1].trace.trace_id,
        "timeout_ms": 20_000,
        "deadline_ms": None,
    }


FAULTS = {
    "endless": "SubagentProtocolError: .* printed more than",
    "not_json": "SubagentProtocolError: .* that is not JSON",
    "wrong_id": "SubagentProtocolError: .* was not asked",
    "exit": "SubagentExitedError: .* ended with status 3 .*cannot go on",
    "silent": r"SubagentTimeoutError: .* did not answer in 0\.\d+ s, and was killed",
}


@pytest.mark.parametrize("how", FAULTS)
async def test_what_the_program_does_wrong_fails_its_call_alone_and_is_told_by_events(
    tmp_path: Path, how: str
) -> None:
    timeout = 0.3 if how == "silent" else 30
    kind = program(pids=tmp_path / "pids", session="session", timeout=timeout)
    async with playing(kind, tmp_path) as play:
        failed = await play.client.start("test", {"how": how, "session": "s"})
        with pytest.raises(RunFailedError, match=FAULTS[how]):
            await failed.result(timeout=PATIENCE_S)
        await gone(pids_in(tmp_path / "pids"))
        good = await play.client.start("test", {"how": "twice", "session": "s"})
        if how != "silent":  # it might take longer than that to start
            assert await good.result(timeout=PATIENCE_S) == 1
        first = moves(await play.events(failed))
    name = f"{Path(sys.executable).name} of test"
    assert first[0] == ("CREATED", "RUNNING", "the first call of its session")
    assert first[1][:2] == ("BUSY", "TERMINATED")
    assert first[1][2].startswith(name)


async def test_the_next_life_says_why_it_was_begun(tmp_path: Path) -> None:
    async with playing(program(session="session"), tmp_path) as play:
        with pytest.raises(RunFailedError):
            await play.result(how="exit", session="s")
        run = await play.client.start("test", {"session": "s"})
        await run.result(timeout=PATIENCE_S)
        ((previous, state, reason),) = moves(await play.events(run))
    assert (previous, state) == ("CREATED", "RUNNING")
    assert "ended with status 3 before it answered" in reason


async def test_an_error_of_the_program_fails_the_call_and_kills_nothing(tmp_path: Path) -> None:
    async with playing(program(session="session"), tmp_path) as play:
        (before,) = await play.replies({"session": "s"})
        with pytest.raises(RunFailedError, match=r"SubagentAnswerError: .* no such thing"):
            await play.result(how="error", session="s")
        (after,) = await play.replies({"session": "s"})
    assert before["pid"] == after["pid"]


async def test_arguments_that_it_does_not_take_never_reach_the_program(tmp_path: Path) -> None:
    async with playing(program(pids=tmp_path / "pids"), tmp_path) as play:
        with pytest.raises(RunFailedError, match=r"test\.task does not take these arguments: hwo"):
            await play.result(hwo="good")
    assert pids_in(tmp_path / "pids") == []


async def test_an_answer_larger_than_a_record_is_an_error_of_the_call(tmp_path: Path) -> None:
    async with playing(program(max_answer=5_000_000), tmp_path) as play:
        with pytest.raises(RunFailedError, match=r"SubagentAnswerError: .*has 2,000,002 bytes as JSON"):
            await play.result(how="huge")


async def test_a_request_that_fails_is_repeated_as_the_author_says(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    lines = f"test -e {flag} || {{ touch {flag}; exit 7; }}; exec {sys.executable} -I -S {SCRIPT}"
    kind = cli_subagent("test", ["sh", "-c", lines], [task], restarts=AT_ONCE, retries=AT_ONCE)
    async with playing(kind, tmp_path) as play:
        assert (await play.result())["how"] == "good"


async def test_the_end_of_the_worker_ends_all_processes(tmp_path: Path) -> None:
    async with playing(program("stubborn", pids=tmp_path / "pids"), tmp_path) as play:
        await play.replies({"how": "children"})
        await play.replies({})
        assert len(pids_in(tmp_path / "pids")) == 4
    assert not any(map(alive, pids_in(tmp_path / "pids")))


async def test_cancelling_a_run_kills_the_process_that_works_for_it(tmp_path: Path) -> None:
    async with playing(program(pids=tmp_path / "pids"), tmp_path) as play:
        run = await play.client.start("test", {"how": "silent"})
        async with asyncio.timeout(PATIENCE_S):
            while not pids_in(tmp_path / "pids"):
                await asyncio.sleep(0.005)
        await run.cancel("enough")
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
        await gone(pids_in(tmp_path / "pids"))


async def test_a_recorded_run_is_verified_without_the_program(tmp_path: Path) -> None:
    async with playing(program(pids=tmp_path / "pids", session="session"), tmp_path) as play:
        runs = [await play.client.start("test", {"how": how, "session": how}) for how in ("twice", "exit")]
        assert await runs[0].result(timeout=PATIENCE_S) == 1
        with pytest.raises(RunFailedError):
            await runs[1].result(timeout=PATIENCE_S)
        gone_by_now = cli_subagent("test", ["no-such-program"], [task], session="session")
        for run in runs:
            target = agent_target(gone_by_now, play.client.log, home=tmp_path)
            verdict = await verify(run, target)
            assert verdict.difference is None, verdict


async def test_a_crash_between_the_process_and_the_request_makes_the_request_once() -> None:
    ready = {"ready": True, "started": True, "reason": "x", "failures": 0}
    scripted = {"test:ready": [ready, ready], "test.task": ["done"]}
    async with Rehearsal(program(), effects=scripted) as rehearsal:
        rehearsal.crash_before("effect.requested", 2)
        run = await rehearsal.start({})
        assert await run.result() == "done"
        assert rehearsal.crashes == 1
        assert rehearsal.call_count("test.task") == 1
        assert moves(await run.history()) == [("CREATED", "RUNNING", "x")]


async def test_of_a_worker_that_died_before_the_request_nothing_is_unknown() -> None:
    ready = {"ready": True, "started": False, "reason": "", "failures": 0}
    scripted = {"test:ready": [ready, ready], "test.task": ["done"]}
    async with Rehearsal(program(), effects=scripted) as rehearsal:
        rehearsal.crash_after("effect.requested", 1)
        run = await rehearsal.start({})
        assert await run.result() == "done"
        assert "effect.outcome.unknown" not in [event.event_type for event in await run.history()]


class Unstartable:
    """A program that can be started only when a test says so."""

    def __init__(self, folder: Path, **declared: Any) -> None:
        self.file = folder / "program"
        self.file.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {SCRIPT}\n")
        self.file.chmod(0o755)
        self.kind = cli_subagent(
            "test", [str(self.file)], [task], restarts=AT_ONCE, session="session", **declared
        )

    def works(self, can: bool) -> None:
        self.file.chmod(0o755 if can else 0o644)


async def question(play: Play) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [one for one in await play.client.approvals() if one.status == "open"]
            if found:
                return found[0]
            await asyncio.sleep(0.005)


async def test_a_person_is_asked_about_a_program_that_cannot_be_started_and_may_agree(tmp_path: Path) -> None:
    program = Unstartable(tmp_path, approvers=("ada",))
    async with playing(program.kind, tmp_path) as play:
        program.works(False)
        run = await play.client.start("test", {"session": "s"})
        asked = await question(play)
        assert asked.question.startswith(
            "Start program of test again? It has failed 3 times in a row: program"
        )
        assert asked.question.endswith("(session s)")
        assert list(asked.approvers) == ["ada"]
        with pytest.raises(RunFailedError, match=r"SubagentStartError: .* and a person was asked"):
            await play.result(session="s")
        program.works(True)
        await run.approve(by="ada")
        assert (await run.result(timeout=PATIENCE_S))["how"] == "good"
        assert (await play.result(session="s"))["how"] == "good"


async def test_a_person_may_refuse_and_the_call_fails(tmp_path: Path) -> None:
    program = Unstartable(tmp_path)
    async with playing(program.kind, tmp_path) as play:
        program.works(False)
        run = await play.client.start("test", {"session": "s"})
        await question(play)
        await run.reject(by="ada")
        with pytest.raises(
            RunFailedError, match=r"SubagentStartError: .* is not started again: nobody agreed"
        ):
            await run.result(timeout=PATIENCE_S)


async def test_a_question_that_nobody_answers_ends_with_the_call(tmp_path: Path) -> None:
    program = Unstartable(tmp_path, patience=0.01)
    async with playing(program.kind, tmp_path) as play:
        program.works(False)
        with pytest.raises(RunFailedError, match="nobody agreed"):
            await play.result(session="s")


async def test_a_call_that_is_cancelled_while_a_person_is_asked_takes_the_question_along(
    tmp_path: Path,
) -> None:
    program = Unstartable(tmp_path)
    async with playing(program.kind, tmp_path) as play:
        program.works(False)
        run = await play.client.start("test", {"session": "s"})
        await question(play)
        await run.cancel()
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
        await play.client.start("test", {"session": "s"})
        await question(play)  # the next call asks again: nobody else could
