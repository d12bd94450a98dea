"""Bugs like those of `planted`, in what a worker promises beside exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from noesium_stream.client.operate import dead_letters
from noesium_stream.event.rules.agent_calls import ANSWERS
from noesium_stream.event.standard import RunDeadlinePassed
from noesium_stream.kernel.step.invocation import Invocation
from noesium_stream.kernel.step.waits import Waits
from noesium_stream.worker.graph_versions import Releases
from noesium_stream.worker.inbox.batch import DecisionApplier
from noesium_stream.worker.inbox.decide import DELIVER, SKIP
from noesium_stream.worker.inbox.deferred_requests import DeferredRequests
from noesium_stream.worker.runs import open_runs, slots
from noesium_stream.worker.runs import run_to_end as runner
from noesium_stream.worker.runs.open_runs import OpenRuns
from noesium_stream.worker.state.command_queue import CommandQueue
from tests.sim.planted import judge_otherwise, planted

# -- time ----------------------------------------------------------------------------------------------


@planted("deadline")
def judge_a_deadline_twice(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a run says anew that its deadline has passed."""
    true_end = OpenRuns._end_if_overdue

    def end(self: OpenRuns, session: Any) -> bool:
        history = session.history
        passed = history.stop is not None and history.stop.event_type == RunDeadlinePassed.TYPE
        if passed and history.compensation is None and history.terminal is None:
            due_ms = history.deadline_ms
            self.writer.submit([session.note(RunDeadlinePassed(run_id=session.run_id, deadline_ms=due_ms))])
            return True
        return true_end(self, session)

    patch.setattr(OpenRuns, "_end_if_overdue", end)


@planted("deadline")
def forget_deadlines_of_runs_that_have_begun(patch: pytest.MonkeyPatch) -> None:
    """A deadline is looked at when a run begins, and not later."""
    true_end = OpenRuns._end_if_overdue

    def end(self: OpenRuns, session: Any) -> bool:
        return not session.history.entered and true_end(self, session)

    patch.setattr(OpenRuns, "_end_if_overdue", end)


@planted("timer")
def wake_too_early(patch: pytest.MonkeyPatch) -> None:
    """What is woken takes it for granted that its time has come."""

    async def until(self: Waits, happened: Any, deadline_ms: int | None) -> None:
        journal = self._place.journal
        changes = journal.activity.changes  # type: ignore[attr-defined]
        await journal.until(
            lambda: happened() or (deadline_ms is not None and journal.activity.changes > changes),  # type: ignore[attr-defined]
            deadline_ms,
        )

    patch.setattr(Waits, "_until", until)


# -- who does not want a run ---------------------------------------------------------------------------


@planted("lost", "cancel")
def pass_over_cancels(patch: pytest.MonkeyPatch) -> None:
    """Nobody hears that a run is to be cancelled."""
    judge_otherwise(patch, ("run.cancel.requested",), DELIVER, SKIP)


@planted("cancel", first=45)
def complete_what_accepted_to_be_cancelled(patch: pytest.MonkeyPatch) -> None:
    """A run that comes to its end does not ask whether it was cancelled meanwhile."""
    patch.setattr(runner, "_is_to_stop", lambda session: False)


@planted("cancel", first=80)
def leave_the_calls_of_ended_runs_alone(patch: pytest.MonkeyPatch) -> None:
    """What a run that has ended has asked of others goes on."""
    patch.setattr(runner, "_cancel", lambda *args: None)


@planted("undone", first=10)
def undo_nothing_for_the_cancelled(patch: pytest.MonkeyPatch) -> None:
    """Only a run that fails is undone."""
    true_must = runner.must_compensate
    patch.setattr(runner, "must_compensate", lambda history: history.stop is None and true_must(history))


# -- effects that outlive their owner ------------------------------------------------------------------


@planted("report", "passed over", first=15)
def ignore_reports(patch: pytest.MonkeyPatch) -> None:
    """What a call came to, whose process had given the run up, is heard by nobody."""
    judge_otherwise(patch, ("effect.reported",), DELIVER, SKIP)


# -- versions ------------------------------------------------------------------------------------------


@planted("lost", "parked", first=55)
def never_look_at_what_is_deferred(patch: pytest.MonkeyPatch) -> None:
    """Requests that were deferred wait, whoever comes."""

    patch.setattr(DeferredRequests, "runs", lambda self: [])


@planted("version", "failed", "repeated", "gap", first=5)
def go_on_with_another_version(patch: pytest.MonkeyPatch) -> None:
    """Any run goes on with the newest graph that is there."""
    patch.setattr(Releases, "carrying", lambda self, pinned: self.newest)
    patch.setattr(open_runs, "go_on", lambda session, graph: None)

    async def no_move(*args: Any) -> None:
        """It is taken for the run's own graph."""

    patch.setattr(runner, "move", no_move)


@planted("version", first=5)
def begin_with_any_version(patch: pytest.MonkeyPatch) -> None:
    """What a command asks for is not looked at."""
    patch.setattr(Releases, "beginning", lambda self, command: self.newest)


# -- turns ---------------------------------------------------------------------------------------------


@planted("turn", first=70)
def serve_the_first_tenant_first(patch: pytest.MonkeyPatch) -> None:
    """Whose turn it was last is forgotten."""
    true_circle = CommandQueue._circle

    def circle(self: CommandQueue, last: str) -> Iterator[str]:
        return true_circle(self, "")

    patch.setattr(CommandQueue, "_circle", circle)


@planted("turn", first=420)
def begin_beside_in_one_order(patch: pytest.MonkeyPatch) -> None:
    """Who began last where no slot was free is forgotten.

    It shows soon where as many runs may begin beside the slots as there are slots.
    """
    patch.setattr(slots, "BESIDE", 1)
    patch.setattr(CommandQueue, "began_beside", lambda self, turns: None)


# -- calls ----------------------------------------------------------------------------------------------


@planted("failed")
def try_no_second_provider(patch: pytest.MonkeyPatch) -> None:
    """A call ends with the error of its first provider, though another one could try without harm."""

    async def send_again(self: Invocation, *given: Any) -> bool:
        return False

    patch.setattr(Invocation, "_send_again", send_again)


@planted("answer")
def take_answers_to_calls_that_were_given_up(patch: pytest.MonkeyPatch) -> None:
    """An answer that comes after the deadline of its call is accepted."""
    judge_otherwise(patch, ANSWERS, SKIP, DELIVER, only_open=True)


# -- dead letters --------------------------------------------------------------------------------------


@planted("letter", first=10)
def send_letters_again_and_again(patch: pytest.MonkeyPatch) -> None:
    """Who decides about letters does not know what was decided before."""
    true_letters = dead_letters.dead_letters

    async def letters(log: Any, agent_type: str | None = None) -> Any:
        return [replace(letter, status="open") for letter in await true_letters(log, agent_type)]

    patch.setattr(dead_letters, "dead_letters", letters)


@planted("letter", "lost")
def pass_over_what_cannot_be_read(patch: pytest.MonkeyPatch) -> None:
    """What is refused is passed over without a letter."""
    patch.setattr(DecisionApplier, "_refuse", lambda self, record, *rest: self._state.skip(record.offset))
