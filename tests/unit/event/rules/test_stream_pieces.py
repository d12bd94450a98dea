"""Which records of the stream topic are pieces for a reader, and where one that comes back goes on."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.rules.stream_pieces import MOST_TASKS, PIECE, Piece, PieceOrder
from tests.support.envelopes import envelope

RUN = "0199a000-0000-7000-8000-000000000001"
WRITER = AgentRef("writer", "writer", "local", "host-1")


def piece(
    number: int,
    data: Any = None,
    *,
    attempt: tuple[int, int] = (1, 0),
    task: str = "pull:write",
    final: bool = False,
    **changes: Any,
) -> EventEnvelope:
    payload = {
        "run_id": RUN,
        "node": "write",
        "step": 1,
        "task_path": task,
        "epoch": attempt[0],
        "execution": attempt[1],
        "data": data,
    }
    fields = {
        "event_type": PIECE,
        "producer": WRITER,
        "partition_key": RUN,
        "payload": payload | ({"pieces": number} if final else {}),
        "stream_sequence": number,
        "stream_final": final or None,
        "metadata": {},
    }
    return envelope(**{**fields, **changes})


def taken(order: PieceOrder, *events: EventEnvelope, at: int = 0) -> list[Piece]:
    found = [order.take(event, at + number) for number, event in enumerate(events)]
    return [one for one in found if one is not None]


def order(cursor: str | None = None) -> PieceOrder:
    return PieceOrder(RUN, "writer", cursor)


def test_pieces_come_in_order_and_the_last_event_is_none_of_them() -> None:
    found = taken(order(), piece(0, "a"), piece(1, "b"), piece(2, final=True))
    assert [(one.data, one.sequence, one.restarted, one.missing) for one in found] == [
        ("a", 0, False, 0),
        ("b", 1, False, 0),
    ]


def test_a_repeated_piece_and_one_after_the_last_are_dropped_without_a_word() -> None:
    of = order()
    events = [piece(0, "a"), piece(0, "a"), piece(1, final=True), piece(1, "late")]
    assert [one.data for one in taken(of, *events)] == ["a"]
    assert of.dropped.total() == 2
    assert of.wrong() == ""


def test_lost_pieces_are_counted_before_the_next_one_and_at_the_end() -> None:
    of = order()
    [one] = taken(of, piece(2, "c"), piece(5, final=True))
    assert one.missing == 2
    assert of.missing == 4


def test_a_later_execution_restarts_its_node_and_no_other() -> None:
    events = [
        piece(0, "a", attempt=(1, 0)),
        piece(0, "other", attempt=(1, 1), task="push:0"),
        piece(0, "a", attempt=(2, 0)),
        piece(1, "other", attempt=(1, 1), task="push:0"),
        piece(1, "b", attempt=(2, 0)),
    ]
    found = taken(order(), *events)
    assert [one.restarted for one in found] == [False, False, True, False, False]


def test_a_process_that_has_lost_the_run_is_not_heard_any_more() -> None:
    of = order()
    events = [
        piece(0, "old"),
        piece(0, "new", attempt=(2, 0)),
        piece(1, "old"),
        piece(1, "new", attempt=(2, 0)),
    ]
    assert [one.data for one in taken(of, *events)] == ["old", "new", "new"]


def test_an_execution_whose_pieces_are_lost_is_told_by_the_next_one() -> None:
    events = [piece(0, "a"), piece(1, final=True, attempt=(1, 1)), piece(0, "b", attempt=(1, 2))]
    assert [one.restarted for one in taken(order(), *events)] == [False, True]


@pytest.mark.parametrize(
    "changes",
    [
        {"producer": AgentRef("writer", "another", "local", "x")},
        {"event_type": "stream.other"},
        {"stream_sequence": None},
        {"stream_sequence": 5_000_000},
        {"payload": piece(0).payload | {"run_id": "another"}},
    ],
    ids=["agent type", "event type", "no number", "far ahead", "another run"],
)
def test_what_the_agent_of_the_run_did_not_write_is_dropped_and_told(changes: dict[str, Any]) -> None:
    of = order()
    assert taken(of, piece(0, "forged", **changes), piece(0, "a"))[0].data == "a"
    assert of.wrong().startswith("1 ")


def test_another_agent_of_the_type_is_dropped_once_it_is_known_who_has_the_run() -> None:
    of = order()
    of.agent_id = "writer"
    assert taken(of, piece(0, "forged", producer=AgentRef("twin", "writer", "local", "x"))) == []
    assert "agent of the run" in of.wrong()


@given(st.integers(0, 7))
def test_a_reader_that_comes_back_gets_the_rest_and_judges_as_before(cut: int) -> None:
    events = [
        piece(0, 0),
        piece(1, 1),
        piece(0, 2, task="push:0", attempt=(1, 1)),
        piece(1, 1),
        piece(0, 3, attempt=(2, 0)),
        piece(2, "zombie"),
        piece(1, 4, attempt=(2, 0)),
        piece(2, final=True, attempt=(2, 0)),
        piece(2, "late", attempt=(2, 0)),
    ]
    whole = taken(order(), *events)
    assert [one.data for one in whole] == [0, 1, 2, 3, 4]
    seen = taken(order(), *events[: cut + 1])
    back = order(seen[-1].cursor)
    assert back.offset == seen[-1].offset + 1
    assert seen + taken(back, *events[back.offset :], at=back.offset) == whole


def test_a_cursor_of_many_tasks_stays_small() -> None:
    found = taken(order(), *(piece(0, n, task=f"push:{n}" * 400) for n in range(3 * MOST_TASKS)))
    assert len(found) == 3 * MOST_TASKS
    assert len(found[-1].cursor) < 10_000
    assert order(found[-1].cursor).offset == 3 * MOST_TASKS


def forged(form: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(form).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "ü",
        "x" * 100_000,
        forged(7),
        forged([-1, []]),
        forged([True, []]),
        forged([0, [["a", 1, 2, 3]]]),
        forged([0, [["a", 1, 2, 3, "4"]]]),
        forged([0, [[7, 1, 2, 3, 0]]]),
        forged([0, [[f"{n}", 1, 2, 3, 0] for n in range(MOST_TASKS + 1)]]),
        forged([0, 7]),
        forged([2**70, []]),
    ],
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ConfigError, match="is not a cursor of pieces"):
        order(cursor)
