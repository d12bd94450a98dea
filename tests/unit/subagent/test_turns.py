"""The order of calls, and the bound on processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import SubagentBusyError
from noesium_stream.subagent.turns import Ticket, Turn, Turns


def went(turns: Turns) -> list[str]:
    return [turn.ticket.session for turn in turns.due()]


def test_a_session_s_calls_go_one_after_the_other_in_their_order() -> None:
    turns = Turns(2, 10)
    first, second, third = (turns.join("a", "jq") for _ in range(3))
    for ticket in (first, second, third):
        assert turns.due() == [Turn(ticket)]
        assert turns.due() == []
        turns.leave(ticket)


def test_sessions_go_side_by_side_as_far_as_there_are_places() -> None:
    turns = Turns(2, 10)
    tickets = {name: turns.join(name, "jq") for name in "abc"}
    assert went(turns) == ["a", "b"]
    turns.leave(tickets["b"])
    assert turns.due() == [Turn(tickets["c"], ends="b")]


def test_the_place_of_the_session_that_was_idle_for_longest_is_taken() -> None:
    turns = Turns(2, 10)
    for name in "aba":
        ticket = turns.join(name, "jq")
        turns.due()
        turns.leave(ticket)
    late = turns.join("c", "jq")
    assert turns.due() == [Turn(late, ends="b")]


def test_a_busy_session_does_not_keep_others_from_a_place() -> None:
    turns = Turns(1, 10)
    first = turns.join("a", "jq")
    turns.due()
    other = turns.join("b", "jq")
    turns.join("a", "jq")
    turns.leave(first)
    assert turns.due() == [Turn(other, ends="a")]


def test_a_place_without_a_process_is_free() -> None:
    turns = Turns(1, 10)
    ticket = turns.join("a", "jq")
    turns.due()
    turns.vacate("a")  # its process is started again: the place stays its own
    other = turns.join("b", "jq")
    assert turns.due() == []
    turns.leave(ticket)
    turns.vacate("a")
    assert turns.due() == [Turn(other)]


def test_a_full_queue_refuses_a_call() -> None:
    turns = Turns(1, 2)
    turns.join("a", "jq")
    turns.due()
    waiting = turns.join("a", "jq")
    turns.join("b", "jq")
    with pytest.raises(SubagentBusyError, match="jq: 2 calls wait for their turn already"):
        turns.join("c", "jq")
    turns.leave(waiting)  # whoever waits may give up
    turns.join("c", "jq")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60), st.integers(1, 3))
def test_no_session_has_two_turns_no_place_is_given_twice_and_all_get_theirs(
    moves: list[tuple[bool, int]], places: int
) -> None:
    turns = Turns(places, 1_000)
    working: list[Ticket] = []
    processes: set[str] = set()
    order: list[Ticket] = []
    joined: list[Ticket] = []

    def let_go() -> None:
        for turn in turns.due():
            if turn.ends is not None:
                assert turn.ends not in {ticket.session for ticket in working}
                processes.remove(turn.ends)
            processes.add(turn.ticket.session)
            working.append(turn.ticket)
            order.append(turn.ticket)
        assert len(processes) <= places
        assert len({ticket.session for ticket in working}) == len(working)

    for joins, number in moves:
        if joins:
            joined.append(turns.join(str(number), "jq"))
        elif working:
            turns.leave(working.pop(number % len(working)))
        let_go()
    while working:
        turns.leave(working.pop(0))
        let_go()
    assert set(order) == set(joined)
    for session in {ticket.session for ticket in joined}:
        assert [t for t in order if t.session == session] == [t for t in joined if t.session == session]
