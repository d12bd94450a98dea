"""What a seed stands for: how many workers and partitions, what is asked of them, and what befalls them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from tests.sim.broker import FAULTS
from tests.sim.cast import CALLER, CARRIER, RUNNER, WALKER
from tests.sim.clock import START_MS
from tests.sim.tool_cast import TOOLERS

TROUBLE_S: Final = 60.0
"""After so long nothing befalls anybody any more."""


class Command(NamedTuple):
    """A run that a client asks for.

    Attributes:
        cancel_after_s: it is cancelled so long after it was asked for.
        cancel_at_end: it is cancelled at about its end.
        deadline_s: it is to have ended so long after it was first sent.
        version: a range of versions that it has to begin with.
        fair: its fairness key.
    """

    at_s: float
    agent_type: str
    orders: list[Any]
    key: str | None
    copies: int
    cancel_after_s: float | None
    signals: list[float]
    cancel_at_end: bool = False
    deadline_s: float | None = None
    version: str | None = None
    fair: str | None = None


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


class Spoil(NamedTuple):
    """A command that is spoiled on its way: under another `key`, to agents of another `type`, or its `bytes`.

    Only the first kind is any good when it is sent again.
    """

    at_s: float
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All of one seed.

    Attributes:
        upgrades: workers of an older and of a newer version, or of both, come and go.
        lingers_s: for so long it is looked on at least, whatever has ended by then.
        at_once: so many runs of an agent work at once in a worker; None: as many as usual.
        fetches: there are agents that fetch, and runs that call them, or others until a deadline.
        tools: there are agents that call tools.
    """

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
    upgrades: bool = False
    lingers_s: float = TROUBLE_S / 4
    at_once: int | None = None
    spoils: list[Spoil] = field(default_factory=list)
    fetches: bool = False
    tools: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types of its agents."""
        fetchers = (RUNNER, WALKER) if self.fetches else ()
        return (CALLER, CARRIER, *fetchers, *(TOOLERS if self.tools else ()))


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    chance = Random(seed)
    words = Words(chance)
    troubles = chance.choice((0, 1, 2, 2, 3, 3, 4, 6))
    odds: dict[str, float] = {}
    if chance.random() < 0.6:
        for fault in chance.sample(FAULTS, chance.randrange(1, 4)):
            odds[fault] = chance.choice((0.003, 0.01, 0.03))
    commands = [_command(chance, words) for _ in range(chance.randrange(1, 5))]
    more = Random(f"{seed} more")
    upgrades = more.random() < 0.25
    commands = [_with_more(more, command, words, upgrades) for command in commands]
    crowd = more.random() < 0.12
    if crowd:
        commands += _crowd(more, words)
    calls = Random(f"{seed} calls")
    fetches = calls.random() < 0.2
    if fetches:
        commands = [_with_calls(calls, command, words) for command in commands]
    chance_of_tools = Random(f"{seed} tools")
    tools = chance_of_tools.random() < 0.3
    if tools:
        commands += [_tool_command(chance_of_tools, words) for _ in range(chance_of_tools.choice((1, 2, 2)))]
    return Plan(
        seed=seed,
        fetches=fetches,
        tools=tools,
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
        upgrades=upgrades,
        at_once=more.choice((1, 2)) if crowd or more.random() < 0.1 else None,
        spoils=_spoils(more, words),
        lingers_s=more.choice((2.0, 2.0, TROUBLE_S / 4)),
    )


class Words:
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


def _command(chance: Random, words: Words) -> Command:
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


def _order(chance: Random, words: Words, depth: int) -> list[Any]:
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


def _with_more(chance: Random, command: Command, words: Words, upgrades: bool) -> Command:
    """The command with what may be said of it, and with orders of a few kinds more."""
    deadline = cancel_at_end = None
    orders = list(command.orders)
    if chance.random() < 0.3:
        seconds = round(chance.choice((0.5, 3.0, 12.0)) * chance.uniform(0.1, 1.5), 3)
        timed = ["timed", words.new(), seconds] if chance.random() < 0.7 else _again(words, seconds)
        until = ["until", START_MS + chance.randrange(50_000)]
        orders.insert(0, chance.choice((timed, timed, until, ["repeatable", words.new()])))
    if chance.random() < 0.2:
        deadline = round(chance.choice((0.05, 1.0, 10.0, 50.0)) * chance.uniform(0.2, 1.2), 3)
    if command.cancel_after_s is None and chance.random() < 0.12:
        cancel_at_end = True
    return command._replace(
        orders=orders,
        key=command.key or (words.new() if cancel_at_end else None),
        deadline_s=deadline,
        cancel_at_end=bool(cancel_at_end),
        version=chance.choice(("^1", "^2", ">=1")) if upgrades and chance.random() < 0.35 else None,
        fair=chance.choice(("red", "blue")) if chance.random() < 0.2 else None,
    )


def _with_calls(chance: Random, command: Command, words: Words) -> Command:
    """The command with calls that have a deadline, or a second provider, or both, one within the other."""
    found = [_call_order(chance, words, 0) for _ in range(chance.choice((1, 1, 2)))]
    if chance.random() < 0.3:
        found = [["fan", found]]
    orders = [*found, *command.orders]
    cancel = chance.uniform(0.0, 20.0) if command.key is not None and chance.random() < 0.3 else None
    return command._replace(orders=orders, cancel_after_s=command.cancel_after_s or cancel)


def _call_order(chance: Random, words: Words, depth: int) -> list[Any]:
    kinds = ["idempotent", "nap", "undoable", "repeatable"]
    inner: list[list[Any]] = []
    for _ in range(chance.choice((1, 1, 2))):
        kind = chance.choice(kinds)
        inner.append(["nap", round(chance.random() * 4.0, 3)] if kind == "nap" else [kind, words.new()])
    if depth < 2 and chance.random() < 0.4:
        inner.append(_call_order(chance, words, depth + 1))
    kinds = ["call", "call by", "call by", *(("fetch", "fetch") if depth == 0 else ())]
    kind = chance.choice(kinds)
    limit = round(chance.choice((0.5, 5.0, 30.0)) * chance.random() + 0.001, 3)
    return [kind, inner, limit] if kind == "call by" else [kind, inner]


def _again(words: Words, seconds: float) -> list[Any]:
    return ["timed again", words.refused(), seconds]


def _crowd(chance: Random, words: Words) -> Iterator[Command]:
    """Small commands of a few tenants at about the same time."""
    at_s = chance.uniform(0, 20)
    for _ in range(chance.randrange(4, 9)):
        orders = [chance.choice((["nap", round(chance.uniform(0.0, 2.0), 3)], ["external", words.new()]))]
        fair = chance.choice(("red", "red", "red", "blue", "green", None))
        late_s = at_s + chance.random()
        yield Command(late_s, CALLER, orders, words.new(), 1, None, [], fair=fair)


def _tool_command(chance: Random, words: Words) -> Command:
    orders: list[list[Any]] = []
    for _ in range(chance.choice((1, 2, 3))):
        order = _tool_order(chance, words)
        if chance.random() < 0.2:
            several = [order, *(_tool_order(chance, words) for _ in range(chance.choice((1, 2))))]
            order = ["fan", several]
        # What was approved for all equal calls is not asked again.
        orders += [order] * chance.choice((1, 1, 1, 2, 3))
    if chance.random() < 0.1:
        orders.append(["fail"])
    return Command(
        at_s=chance.choice((0.0, chance.uniform(0, 5), chance.uniform(0, 40))),
        agent_type=chance.choice(TOOLERS),
        orders=orders,
        key=words.new(),
        copies=chance.choice((1, 1, 2)),
        cancel_after_s=chance.uniform(0.0, 40.0) if chance.random() < 0.15 else None,
        signals=[],
        deadline_s=round(chance.uniform(1.0, 60.0), 3) if chance.random() < 0.1 else None,
    )


def _tool_order(chance: Random, words: Words) -> list[Any]:
    names = ("look", "label", "send", "send", "send", "send_soon", "label_soon", "open_it")
    name = chance.choice(names)
    return ["tool", name, words.refused() if name == "label" else words.new()]


def _spoils(chance: Random, words: Words) -> list[Spoil]:
    if chance.random() < 0.85:
        return []
    return [
        Spoil(chance.uniform(0, 30), chance.choice(("key", "key", "type", "bytes")), words.new())
        for _ in range(chance.choice((1, 1, 2)))
    ]


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
