"""What a run of an ordinary graph gives back: its final state, for readers that know nothing of its types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import pytest
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from noesium_stream import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import RunFailedError
from noesium_stream.kernel.state.typed_json import TYPE, readable
from noesium_stream.testing import Rehearsal


class Colour(Enum):
    RED = "red"


@dataclass
class Parcel:
    weight: Decimal
    sent: date


class Address(BaseModel):
    town: str
    since: date


class State(TypedDict, total=False):
    found: Any | Colour | Parcel | Address


def graph_that_returns(value: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("find", lambda state: {"found": value})
    builder.add_edge(START, "find")
    return builder.compile()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        (timedelta(days=2, seconds=1), "P2DT1S"),
        (Decimal("1.20"), "1.20"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({"pear", "apple"}, ["apple", "pear"]),
        ((1, 2), [1, 2]),
        (b"abc", "YWJj"),
        ({1: "one", (1, 2): "pair"}, {"1": "one", "[1,2]": "pair"}),
        (Colour.RED, "red"),
        (Parcel(Decimal("3.5"), date(2026, 1, 2)), {"weight": "3.5", "sent": "2026-01-02"}),
        (Address(town="Brackwater", since=date(2026, 1, 2)), {"town": "Brackwater", "since": "2026-01-02"}),
        ({TYPE: "mine", "value": 1}, {TYPE: "mine", "value": 1}),
        ([{"when": date(2026, 1, 2)}], [{"when": "2026-01-02"}]),
    ],
)
async def test_a_state_with_types_is_a_result(value: Any, shown: Any) -> None:
    agent = agent_from_graph(graph_that_returns(value))
    async with Rehearsal(agent) as rehearsal:
        run = await rehearsal.start()
        assert await run.result() == {"found": shown}
        verdict = await verify(run, agent_target(agent, rehearsal.log))
    assert verdict.is_same, verdict.difference


async def test_an_agent_s_own_result_is_taken_as_it_is_and_has_to_be_json() -> None:
    class Own(agent_from_graph(graph_that_returns(date(2026, 1, 2)))):  # type: ignore[misc]
        def result(self, state: dict[str, Any]) -> Any:
            return state["found"]

    async with Rehearsal(Own) as rehearsal:
        run = await rehearsal.start()
        with pytest.raises(RunFailedError, match="result is of type date, which has no JSON form"):
            await run.result()


def test_what_cannot_be_recorded_is_no_result_either() -> None:
    with pytest.raises(Exception, match=r"result\.a\[0\] is of type object"):
        readable({"a": [object()]})
