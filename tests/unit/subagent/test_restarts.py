"""Back-off and escalation of a sub-agent that fails, without clock and chance."""

from __future__ import annotations

from noesium_stream.errors import SubagentExitedError
from noesium_stream.kernel.retry import Retries
from noesium_stream.subagent.restarts import Restarts, Verdict

DIED = SubagentExitedError("jq ended with status 5.")
POLICY = Retries(max_attempts=4, initial_interval=1, backoff_factor=2, max_interval=3, jitter=0.5)


def failed(times: int) -> Restarts:
    restarts = Restarts(POLICY)
    for _ in range(times):
        restarts.failed(DIED, 100, 0.5)
    return restarts


def test_the_first_start_waits_for_nothing() -> None:
    assert Restarts(POLICY).verdict(0) == Verdict(0)


def test_pauses_double_up_to_the_longest_one() -> None:
    assert [failed(times).verdict(100).wait_s for times in (1, 2, 3)] == [1, 2, 3]


def test_chance_moves_a_pause_by_the_jitter() -> None:
    shortest, longest = Restarts(POLICY), Restarts(POLICY)
    shortest.failed(DIED, 0, 0)
    longest.failed(DIED, 0, 1)
    assert (shortest.verdict(0).wait_s, longest.verdict(0).wait_s) == (0.5, 1.5)


def test_time_that_has_passed_counts() -> None:
    assert failed(2).verdict(101.5).wait_s == 0.5
    assert failed(2).verdict(200).wait_s == 0


def test_after_the_last_attempt_a_person_is_asked_once_and_others_are_refused() -> None:
    restarts = failed(4)
    assert restarts.verdict(100) == Verdict(ask=True)
    assert restarts.verdict(100) == Verdict(None)
    assert restarts.reason == "jq ended with status 5."


def test_one_try_is_made_per_longest_pause_while_nobody_answers() -> None:
    restarts = failed(4)
    assert restarts.verdict(100).ask
    assert restarts.verdict(103) == Verdict(0)
    restarts.failed(DIED, 103, 0.5)
    assert restarts.verdict(103) == Verdict(None)


def test_a_success_ends_it_all() -> None:
    restarts = failed(4)
    assert restarts.verdict(100).ask
    restarts.worked()
    assert restarts.verdict(100) == Verdict(0)
    assert not restarts.asked


def test_a_person_who_agrees_makes_it_start_at_once() -> None:
    restarts = failed(4)
    assert restarts.verdict(100).ask
    restarts.answered(True, 100)
    assert restarts.verdict(100) == Verdict(0)


def test_after_a_refusal_it_gets_one_try_before_a_person_is_asked_again() -> None:
    restarts = failed(4)
    assert restarts.verdict(100).ask
    restarts.answered(False, 100)
    assert restarts.verdict(100) == Verdict(3)
    restarts.failed(DIED, 103, 0.5)
    assert restarts.verdict(103) == Verdict(ask=True)
