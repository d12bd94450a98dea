"""The states of a sub-agent's process."""

from __future__ import annotations

import pytest

from noesium_stream.errors import SubagentStateError
from noesium_stream.subagent.lifecycle import Life, State

ALLOWED = {
    (State.CREATED, State.RUNNING),
    (State.CREATED, State.TERMINATED),
    (State.RUNNING, State.BUSY),
    (State.RUNNING, State.TERMINATED),
    (State.BUSY, State.IDLE),
    (State.IDLE, State.BUSY),
    (State.IDLE, State.TERMINATED),
}


@pytest.mark.parametrize("to", State)
@pytest.mark.parametrize("start", State)
def test_only_the_moves_of_the_life_cycle_are_made(start: State, to: State) -> None:
    life = Life("jq", start)
    if (start, to) in ALLOWED:
        life.move(to)
        assert life.state is to
        return
    with pytest.raises(SubagentStateError, match=f"jq is {start}"):
        life.move(to)
    assert life.state is start


def test_a_busy_one_is_terminated_by_force_only() -> None:
    life = Life("jq", State.BUSY)
    with pytest.raises(SubagentStateError, match="works at a request"):
        life.move(State.TERMINATED)
    life.move(State.TERMINATED, force=True)
    assert life.state is State.TERMINATED


def test_force_does_not_revive_the_dead() -> None:
    with pytest.raises(SubagentStateError):
        Life("jq", State.TERMINATED).move(State.RUNNING, force=True)


@pytest.mark.parametrize("state", State)
def test_it_can_be_asked_when_it_runs_and_has_nothing_to_do(state: State) -> None:
    assert Life("jq", state).can_be_asked == (state in (State.RUNNING, State.IDLE))
