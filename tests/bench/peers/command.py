"""The bench of peers: this product beside the systems that a user would pick instead.

    python -m tests.bench peers [--rounds 3] [--only runs,takeover,...] [--peers sqlite-sync,restate,...]
        [--quick] [--runs 2000] [--conversations 20] [--events 300000] [--folder FOLDER] [--work FOLDER]
        [--json]

Prints one table, and one of handlers beside Kafka Streams: medians of rounds in which the systems take turns.
The peers are installed from package registries, in the versions of `versions.toml`, into a folder outside the
repository. One that cannot be
installed, or fails, is a line with its reason and stops nothing else. Every system does the same: two trivial
durable steps a run, ten steps one after the other, runs in their second step when the only worker is killed,
conversations in a state that grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.bench.harness import commit, progress
from tests.bench.peers.handler import HANDLERS, HandlerSystem, handler_bench
from tests.bench.peers.installing import VERSIONS, Installer, NotInstalledError, default_folder
from tests.bench.peers.rows import PARTS, Session, Values
from tests.bench.peers.settings import QUICK, PeerSettings
from tests.bench.peers.systems import SYSTEMS, Ground, System, remove
from tests.bench.peers.table import COLUMNS, HANDLER_COLUMNS, table

ROWS = ("runs", "bulk", "lone", "takeover", "disk", "handler")
Side = TypeVar("Side")
_OF_TAKEOVER = ("first", "complete")


class Measured:
    """Values by system and column, a value per round, and the reasons of what failed."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, list[float]]] = {}
        self.failed: dict[str, str] = {}

    async def take(self, turn: int, name: str, part: str, once: Callable[[], Awaitable[Values]]) -> None:
        """Measure a part of a round; keep its values or the reason. What has failed is not tried again."""
        if name in self.failed or f"{name}, {part}" in self.failed:
            return
        try:
            values = await once()
        except Exception as error:
            self.fail(name, part, error)
            return
        for column, value in values.items():
            self.found.setdefault(name, {}).setdefault(column, []).append(value)
        shown = ", ".join(f"{column} {value:.4g}" for column, value in values.items())
        progress(f"  round {turn + 1}, {name}: {shown}")

    def fail(self, name: str, part: str, error: BaseException) -> None:
        """Keep the reason; a system that is not installed fails as a whole."""
        if isinstance(error, NotInstalledError):
            self.failed[name] = str(error)
            return
        traceback.print_exception(error)
        self.failed[f"{name}, {part}"] = f"{type(error).__name__}: {error}"


async def measure(
    settings: PeerSettings,
    systems: Sequence[System],
    rows: Sequence[str],
    ground: Ground,
    handlers: Sequence[HandlerSystem] = (),
) -> Measured:
    """All rounds; the systems take turns, in the opposite order in every other round."""
    measured = Measured()
    wanted = frozenset(rows) | (frozenset(_OF_TAKEOVER) if "takeover" in rows else frozenset())
    for turn, system in _turns(settings.rounds, systems):
        for part, (_, columns) in PARTS.items():
            if not wanted.isdisjoint(columns):
                await measured.take(
                    turn, system.name, part, partial(_once, settings, system, part, wanted, ground)
                )
    if "handler" in wanted and handlers:
        await _measure_handlers(settings, handlers, ground, measured)
    return measured


async def _measure_handlers(
    settings: PeerSettings, handlers: Sequence[HandlerSystem], ground: Ground, measured: Measured
) -> None:
    try:
        async with handler_bench(settings, ground) as bench:
            for turn, system in _turns(settings.rounds, handlers):
                await measured.take(turn, system.name, "handler", partial(bench.once, system))
    except Exception as error:
        measured.fail("handlers", "handler", error)


def _turns(rounds: int, sides: Sequence[Side]) -> Iterator[tuple[int, Side]]:
    """The sides of each round, in the opposite order in every other one."""
    for turn in range(rounds):
        yield from ((turn, side) for side in (sides if turn % 2 == 0 else reversed(sides)))


async def _once(
    settings: PeerSettings, system: System, part: str, wanted: frozenset[str], ground: Ground
) -> Values:
    folder = ground.fresh(system.name)
    try:
        async with system.open(ground, folder) as place:
            return await PARTS[part][0](Session(system, place, folder, settings), wanted)
    finally:
        remove(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 when something could not be measured."""
    asked = _parser().parse_args(arguments)
    settings = QUICK if asked.quick else PeerSettings()
    given = {name: getattr(asked, name) for name in ("rounds", "runs", "conversations", "events")}
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    settings = replace(settings, warm=min(settings.warm, settings.runs))
    measured = asyncio.run(_measured(asked, settings))
    print(_json(settings, measured) if asked.json else "\n".join(report(settings, measured)))
    return 1 if measured.failed else 0


async def _measured(asked: argparse.Namespace, settings: PeerSettings) -> Measured:
    systems = [system for system in SYSTEMS if system.name in asked.peers]
    handlers = [system for system in HANDLERS if system.name in asked.peers]
    with tempfile.TemporaryDirectory(prefix="noesium-peers-", dir=asked.work) as folder:
        async with AsyncExitStack() as stack:
            ground = Ground(Path(folder), Installer(asked.folder.absolute()), stack)
            return await measure(settings, systems, asked.only, ground, handlers)


def report(settings: PeerSettings, measured: Measured) -> list[str]:
    """The tables with the machine, the versions, the date and the reasons of what is missing."""
    sides = {system.name: (system.label, system.durability) for system in (*SYSTEMS, *HANDLERS)}
    lines = table("system", COLUMNS, sides, measured.found)
    lines += ["", *table("handler, exactly once", HANDLER_COLUMNS, sides, measured.found)]
    lines += ["", *(f"- Not measured: {name}: {reason}" for name, reason in measured.failed.items())]
    return [
        *lines,
        f"- {_machine()}; {datetime.now(UTC):%Y-%m-%d}, commit {commit()}",
        f"- Medians of {settings.rounds} rounds, the systems in turn: {settings.runs:,} runs with "
        f"{settings.at_once} in flight, {settings.lone} runs of ten steps, {settings.open_runs} open runs, "
        f"{settings.conversations} conversations of {settings.messages} messages of "
        f"{settings.message_bytes} bytes, {settings.events:,} events in {settings.partitions} partitions.",
        f"- Versions: {', '.join(_pinned())}",
    ]


def _pinned() -> list[str]:
    """The packages of the peers, in their pinned versions."""
    python = {package for packages in VERSIONS["python"].values() for package in packages}
    return sorted(python | {*VERSIONS["npm"].values(), *VERSIONS["go"].values()})


def _machine() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = names[0].partition(":")[2].strip() if names else platform.processor()
    return (
        f"{os.cpu_count()} processors ({processor}), load {os.getloadavg()[0]:.1f} at the end, "
        f"Python {platform.python_version()}"
    )


def _json(settings: PeerSettings, measured: Measured) -> str:
    found = {"settings": asdict(settings), "found": measured.found, "failed": measured.failed}
    return json.dumps({"commit": commit(), **found})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench peers", description=__doc__)
    names = tuple(system.name for system in (*SYSTEMS, *HANDLERS))
    parser.add_argument("--rounds", type=_positive, help="of which the median counts (default: 3)")
    parser.add_argument("--only", type=_some(ROWS), default=ROWS, help=f"some of {','.join(ROWS)}")
    parser.add_argument("--peers", type=_some(names), default=names, help=f"some of {','.join(names)}")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    parser.add_argument("--runs", type=_positive, help="of two steps (default: 2,000)")
    parser.add_argument("--conversations", type=_positive, help="of 100 messages (default: 20)")
    parser.add_argument("--events", type=_positive, help="for the handlers (default: 300,000)")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="where peers are installed")
    parser.add_argument("--work", type=Path, help="for what is measured (default: the temporary folder)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _some(known: Sequence[str]) -> Any:
    def names(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return found

    return names
