"""What a seed stands for in a world with schedules: what people say of them, and how clocks jump."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, NamedTuple

from noesium_stream.clock import to_ms
from noesium_stream.event.standard import Overlap, ScheduleTimes
from tests.sim.plan import TROUBLE_S, Growth, Plan, plan_of

SLEEPER: Final = "sleeper"
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
MOST_MADE_UP: Final = 12
"""So many ticks of an interval are made up at most, in all seeds but a few: a run costs more than a tick."""

_NIGHTS: Final = (
    ("Europe/Berlin", datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, 0, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, 0, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, 0, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, 0, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
)
"""Zones, and moments at which their clocks are put forward or back."""

_CRONS: Final = ("*/15 * * * *", "30 * * * *", "0 */2 * * *", "30 2 * * *", "15 1 * * *", "45 1-3 * * *")


class Planned(NamedTuple):
    """A schedule that somebody adds; `limit_ms`, `paused` and the others as in `schedule.added`."""

    name: str
    orders: list[Any]
    times: ScheduleTimes
    overlap: Overlap
    catchup_ms: int
    limit_ms: int | None
    paused: bool


class Said(NamedTuple):
    """What somebody says of a schedule: `add`, `pause`, `resume`, `trigger` (with a policy) or `remove`."""

    at_s: float
    who: str
    kind: str
    planned: Planned
    overlap: Overlap | None = None


class Jump(NamedTuple):
    """The clock of a worker is put forward or back; `machine` None: that of the world is put forward."""

    at_s: float
    ms: int
    machine: int | None = None


@dataclass(frozen=True, slots=True)
class SchedulePlan(Plan):
    """A plan whose runs are started by schedules.

    Attributes:
        begins_ms: the time at which the play begins, in milliseconds since the epoch.
        said: what people say, in order.
        jumps: of clocks, in order.
    """

    begins_ms: int = 0
    said: list[Said] = field(default_factory=list)
    jumps: list[Jump] = field(default_factory=list)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types of its agents with runs."""
        return (SLEEPER,)


def schedule_plan_of(seed: int) -> SchedulePlan:
    """The plan of a seed: its troubles are those of the same seed without schedules."""
    usual, chance = plan_of(seed), Random(f"{seed} schedules")
    zone, changes = chance.choice(_NIGHTS)
    begins_ms = to_ms(changes) - round(chance.uniform(0.1, 3.0) * HOUR_MS)
    said: list[Said] = []
    for number in range(chance.choice((1, 2, 2, 3, 3, 4))):
        said += _life(chance, f"s{number}", begins_ms, zone)
    fields: dict[str, Any] = {name: getattr(usual, name) for name in Plan.__dataclass_fields__}
    fields |= {"commands": [], "spoils": [], "upgrades": False, "fetches": False, "tools": False}
    fields |= {"growths": [Growth(one.at_s, SLEEPER, one.more) for one in usual.growths], "refusals": {}}
    return SchedulePlan(
        **fields,
        begins_ms=begins_ms,
        said=sorted(said, key=lambda one: one.at_s),
        jumps=sorted(_jumps(chance)),
    )


def _life(chance: Random, name: str, begins_ms: int, zone: str) -> list[Said]:
    """What is said of the schedules of one name, which is added again now and then."""
    planned = _planned(chance, name, begins_ms, zone)
    at_s = chance.choice((0.0, 0.0, chance.uniform(0.0, 20.0)))
    said = [Said(at_s, "client", "add", planned)]
    kinds = ("trigger", "trigger", "pause", "resume", "resume", "remove")
    for _ in range(chance.choice((0, 1, 2, 3, 5, 8))):
        at_s = min(at_s + chance.choice((0.01, 1.0, 10.0, 25.0)) * chance.random(), TROUBLE_S - 2)
        kind = chance.choice(kinds)
        who = chance.choice(("client", "anne"))
        policy = chance.choice((None, None, *Overlap)) if kind == "trigger" else None
        said.append(Said(at_s, who, kind, planned, policy))
        if kind == "remove" and chance.random() < 0.8:
            at_s = min(at_s + chance.choice((0.0, 5.0)) * chance.random(), TROUBLE_S - 2)
            planned = _planned(chance, name, begins_ms, zone)
            said.append(Said(at_s, who, "add", planned))
    return said


def _planned(chance: Random, name: str, begins_ms: int, zone: str) -> Planned:
    kind = chance.choice(("every", "every", "cron", "cron", "at"))
    catchup_ms = chance.choice((0, 30_000, 10 * MINUTE_MS, HOUR_MS, 24 * HOUR_MS))
    if kind == "every":
        every_ms = chance.choice((4_000, 9_000, 20_000, 5 * MINUTE_MS, HOUR_MS))
        given = {"every_ms": every_ms, "phase_ms": chance.choice((0, chance.randrange(every_ms)))}
        catchup_ms = min(catchup_ms, every_ms * (MOST_MADE_UP if chance.random() < 0.95 else 150))
        jitter_ms = every_ms
    elif kind == "cron":
        given = {"cron": chance.choice(_CRONS), "zone": chance.choice((zone, zone, zone, None))}
        jitter_ms = 15 * MINUTE_MS
    else:
        given = {"at_ms": begins_ms + round(chance.choice((60_000, HOUR_MS)) * chance.uniform(0.4, 2.0))}
        jitter_ms = MINUTE_MS
    if kind != "at" and chance.random() < 0.2:
        given["from_ms"] = begins_ms + chance.randrange(30_000)
        given["until_ms"] = given["from_ms"] + chance.choice((40_000, 2 * HOUR_MS))
    given["jitter_ms"] = chance.choice((0, 0, jitter_ms // 3, 2 * jitter_ms))
    return Planned(
        name=name,
        orders=_orders(chance, name),
        times=ScheduleTimes.model_validate(given),
        overlap=chance.choice(list(Overlap)),
        catchup_ms=catchup_ms,
        limit_ms=chance.choice((None, None, None, 8_000)),
        paused=chance.random() < 0.1,
    )


def _orders(chance: Random, name: str) -> list[Any]:
    longest_s = chance.choice((0.2, 3.0, 12.0, 40.0))
    orders: list[Any] = [["doze", 0.0, longest_s]]
    if chance.random() < 0.3:
        orders.insert(chance.choice((0, 1)), ["repeatable", f"words of {name}"])
    return orders


def _jumps(chance: Random) -> list[Jump]:
    spans = (20_000, 5 * MINUTE_MS, 15 * MINUTE_MS, 20 * MINUTE_MS, 40 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS)
    jumps = [
        Jump(chance.uniform(1.0, TROUBLE_S - 2), chance.choice(spans)) for _ in range(chance.randrange(9))
    ]
    if chance.random() < 0.25:
        jumps.append(Jump(chance.uniform(1.0, TROUBLE_S - 2), 26 * HOUR_MS))
    if chance.random() < 0.4:
        at_s, machine = chance.uniform(0.0, TROUBLE_S - 12), chance.randrange(3)
        wrong_ms = chance.choice((-20 * MINUTE_MS, -5_000, 5_000, 20 * MINUTE_MS, HOUR_MS))
        jumps += [Jump(at_s, wrong_ms, machine), Jump(at_s + chance.uniform(0.5, 10.0), -wrong_ms, machine)]
    return jumps
