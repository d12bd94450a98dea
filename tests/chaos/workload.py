"""What the workers of the fault harness do, and what is asked of them.

The graphs are those of the simulation (`tests.sim.cast`): a `caller` does what its input says, one thing per
step (external, idempotent and undoable effects, questions, timers, signals, branches), and delegates to a
`carrier`. Beside them a plain handler sums up facts by key, and a projection folds it all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from noesium_stream.agent import BaseHandler
from noesium_stream.event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.projection.base import BaseProjection
from noesium_stream.tool import Mode, tool
from tests.sim import cast
from tests.sim.cast import CALLER, CARRIER, answer_of
from tests.sim.tool_cast import label, look

__all__ = ["CALLER", "CARRIER", "KINDS", "SUMS", "Caller", "Carrier", "Command", "Counted", "Summed", "Sums"]

KINDS = (CALLER, CARRIER)
SUMS = "sums"
COUNTED = "events.things"
SUMMED = "events.sums"
KEYS = ("a", "b", "c", "d", "e")


@tool(side_effects=SideEffectClass.EXTERNAL, timeout=5)
async def send(words: str, idempotency_key: str) -> str:
    """Send a parcel; whoever comes after a crash waits for the call no longer than that."""
    return str(await cast.external(words, idempotency_key))


class Caller(cast.Caller):
    tools = (look, label, send)
    mode = Mode.AUTO


class Carrier(cast.Carrier):
    tools = Caller.tools
    mode = Mode.AUTO


class Counted(DomainEvent, event_type="things.counted"):
    number: int


class Summed(DomainEvent, event_type="sums.made"):
    number: int
    total: int


class Totals(BaseProjection[int]):
    """By key, what was counted so far."""

    name = "totals"
    topics = (COUNTED,)
    events = (Counted,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["number"])


class Sums(BaseHandler):
    """A plain handler: each number, and the sum of its key up to there."""

    agent_type = SUMS
    state = Totals
    events = (Counted, Summed)

    def handle(self, event: EventEnvelope, state: int) -> Iterator[DomainEvent]:
        number = event.payload["number"]
        yield Summed(number=number, total=state + number)


class Tally(BaseProjection[dict[str, Any]]):
    """By key, all of its events in their order: what is folded twice, left out or out of order shows."""

    name = "tally"
    topics = (f"agent.{CALLER}.journal", f"agent.{CARRIER}.journal", "events.*")
    local_keys = True  # a call of another run has that run's key, in the caller's partition

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> dict[str, Any]:
        return {"count": 0, "digest": "", "types": []}

    def apply(self, state: dict[str, Any], event: EventEnvelope) -> dict[str, Any]:
        text = f"{state['digest']}/{event.event_id}"
        return {
            "count": state["count"] + 1,
            "digest": hashlib.sha256(text.encode()).hexdigest(),
            "types": sorted({*state["types"], event.event_type}),
        }


@dataclass(frozen=True, slots=True)
class Command:
    """A run that is asked for, `copies` times under one idempotency key, with so many signals."""

    agent_type: str
    orders: list[Any]
    key: str
    copies: int = 1
    signals: int = 0

    @property
    def gives(self) -> dict[str, Any]:
        """The result, if it completes."""
        return {"got": [answer_of(order) for order in self.orders]}


@dataclass(frozen=True, slots=True)
class Workload:
    """Commands, and facts for the handler as (key, number); all in the order in which they are sent."""

    commands: list[Command] = field(default_factory=list)
    facts: list[tuple[str, int]] = field(default_factory=list)


def workload_of(seed: int, runs: int = 22, facts: int = 60) -> Workload:
    """What is asked under this seed: every kind of order is among it."""
    chance = Random(f"{seed} workload")
    words = (f"w{number}" for number in range(1_000_000))
    lists: list[list[Any]] = [[_order(kind, words, chance)] for kind in _ORDERS]
    while len(lists) < runs:
        kinds = chance.choices(_ORDERS, k=chance.choice((1, 2, 2, 3)))
        lists.append([_order(kind, words, chance) for kind in kinds])
        if chance.random() < 0.15:
            lists[-1].append(["fail"])
    chance.shuffle(lists)
    commands = [_command(f"c{number}", orders, chance) for number, orders in enumerate(lists)]
    return Workload(commands, [(chance.choice(KEYS), number) for number in range(facts)])


_ORDERS = (
    "external",
    "idempotent",
    "undoable",
    "ask",
    "nap",
    "call",
    "fan",
    "emit",
    "signal",
    "external",
    "tool",
    "tool",
)


def _command(key: str, orders: list[Any], chance: Random) -> Command:
    signals = sum(order[0] == "signal" for order in orders)
    agent_type = CARRIER if chance.random() < 0.2 else CALLER
    return Command(agent_type, orders, key, chance.choice((1, 1, 1, 2)), signals)


def _order(kind: str, words: Iterator[str], chance: Random) -> list[Any]:
    if kind == "tool":
        return ["tool", chance.choice(("look", "label", "send", "send")), next(words)]
    if kind == "nap":
        return [kind, round(chance.uniform(0.02, 0.4), 3)]
    if kind == "signal":
        return [kind, "go"]
    if kind == "call":
        return [kind, [_order(chance.choice(("external", "idempotent", "ask")), words, chance)]]
    if kind == "fan":
        inner = chance.choices(("external", "idempotent", "nap", "ask", "call"), k=3)
        return [kind, [_order(one, words, chance) for one in inner]]
    return [kind, next(words)]
