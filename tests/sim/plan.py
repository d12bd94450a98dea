"""What a seed stands for: how many workers and partitions, what is asked of them, and what befalls them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from tests.sim.broker import FAULTS
from tests.sim.cast import CALLER, CARRIER

TROUBLE_S: Final = 60.0
"""After so long nothing befalls anybody any more."""


class Command(NamedTuple):
    """A run that a client asks for."""

    at_s: float
    agent_type: str
    orders: list[Any]
    key: str | None
    copies: int
    cancel_after_s: float | None
    signals: list[float]


class Mishap(NamedTuple):
    """Something that befalls a worker: `kill`, `pause`, `cut`, `stop`, `join`, and where a number says so."""

    at_s: float
    kind: str
    victim: int
    steps: int
    seconds: float


class Growth(NamedTuple):
    """An agent type that gets so many partitions more."""

    at_s: float
    agent_type: str
    more: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All of one seed."""

    seed: int
    partitions: int
    workers: int
    grace_s: float
    odds: dict[str, float]
    commands: list[Command]
    mishaps: list[Mishap]
    skews_ms: list[int]
    refusals: dict[str, int] = field(default_factory=dict)
    keeps_state: bool = True
    growths: list[Growth] = field(default_factory=list)


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    chance = Random(seed)
    words = _Words(chance)
    troubles = chance.choice((0, 1, 2, 2, 3, 3, 4, 6))
    odds: dict[str, float] = {}
    if chance.random() < 0.6:
        for fault in chance.sample(FAULTS, chance.randrange(1, 4)):
            odds[fault] = chance.choice((0.003, 0.01, 0.03))
    commands = [_command(chance, words) for _ in range(chance.randrange(1, 5))]
    return Plan(
        seed=seed,
        partitions=chance.choice((1, 1, 2, 3)),
        workers=chance.choice((1, 2, 2, 3)),
        grace_s=chance.choice((0.0, 1.0, 8.0)),
        odds=odds,
        commands=sorted(commands, key=lambda command: command.at_s),
        mishaps=sorted(_mishap(chance) for _ in range(troubles)),
        skews_ms=[chance.choice((0, 0, -1500, 700, 4000)) for _ in range(4)],
        refusals=words.refusals,
        keeps_state=seed % 4 != 0,
        growths=_growths(Random(f"{seed} growth")),
    )


class _Words:
    """Words that no two orders share."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._count = 0
        self.refusals: dict[str, int] = {}

    def new(self) -> str:
        self._count += 1
        return f"w{self._count}"

    def refused(self) -> str:
        word = self.new()
        if self._chance.random() < 0.2:
            self.refusals[word] = self._chance.randrange(1, 3)
        return word


def _command(chance: Random, words: _Words) -> Command:
    agent_type = CALLER if chance.random() < 0.8 else CARRIER
    orders = [_order(chance, words, 0) for _ in range(chance.choice((1, 1, 2, 2, 3, 4)))]
    if chance.random() < 0.15:
        orders.append(["fail"])
    cancel = chance.uniform(0.0, 40.0) if chance.random() < 0.15 else None
    if chance.random() < 0.08:
        orders.append(["signal", "never"])
        cancel = chance.uniform(0.0, 60.0)
    signals = [chance.uniform(0.0, 30.0) for _ in range(_signals(orders))]
    # Without a key nobody knows the run of a command that was not acknowledged, and nobody could signal it.
    keyed = bool(signals) or cancel is not None or chance.random() < 0.6
    return Command(
        at_s=chance.choice((0.0, chance.uniform(0, 5), chance.uniform(0, 50))),
        agent_type=agent_type,
        orders=orders,
        key=words.new() if keyed else None,
        copies=chance.choice((1, 1, 1, 2, 3)),
        cancel_after_s=cancel,
        signals=signals,
    )


def _order(chance: Random, words: _Words, depth: int) -> list[Any]:
    kinds = ["pure", "idempotent", "external", "external", "undoable", "undoable", "ask", "ask soon", "nap"]
    kinds += ["emit"] if depth == 0 else []
    kinds += ["signal", "call", "call", "fan"] if depth == 0 else ["call", "signal"] if depth == 1 else []
    kind = chance.choice(kinds)
    if kind in ("idempotent", "external", "undoable"):
        return [kind, words.refused()]
    if kind in ("pure", "ask", "emit"):
        return [kind, words.new()]
    if kind == "ask soon":
        return [kind, words.new(), round(chance.uniform(0.5, 20), 3)]
    if kind == "nap":
        return [kind, round(chance.choice((0.05, 1.0, 10.0, 40.0)) * chance.random(), 3)]
    if kind == "signal":
        return [kind, "go"]
    if kind == "call":
        # Who is asked has nobody who sends signals to it.
        inner = [_order(chance, words, 2) for _ in range(chance.choice((1, 1, 2)))]
        if chance.random() < 0.1:
            inner.append(["fail"])
        return [kind, inner]
    return [kind, [_order(chance, words, 1) for _ in range(chance.choice((2, 2, 3)))]]


def _growths(chance: Random) -> list[Growth]:
    if chance.random() < 0.75:
        return []
    return sorted(
        Growth(
            at_s=chance.choice((0.0, chance.uniform(0, 5), chance.uniform(0, 50))),
            agent_type=chance.choice((CALLER, CARRIER)),
            more=chance.randrange(1, 4),
        )
        for _ in range(chance.choice((1, 1, 2, 3)))
    )


def _signals(orders: list[Any]) -> int:
    count = 0
    for kind, *rest in orders:
        if kind == "signal" and rest[0] == "go":
            count += 1
        elif kind == "fan":
            count += _signals(rest[0])
    return count


def _mishap(chance: Random) -> Mishap:
    return Mishap(
        at_s=chance.choice((chance.uniform(0, 3), chance.uniform(0, 15), chance.uniform(0, TROUBLE_S - 5))),
        kind=chance.choice(("kill", "kill", "kill", "pause", "pause", "cut", "cut", "stop", "join")),
        victim=chance.randrange(8),
        steps=int(chance.random() ** 2 * 600),
        seconds=chance.choice((0.3, 3.0, 12.0, 30.0)) * chance.uniform(0.3, 1.5),
    )
