"""The command of the bench.

    python -m tests.bench log [--events 100000] [--only append,read,...] [--bootstrap HOST:PORT] [--json]

Figures are reported, not asserted: the exit code is 0 when all could be measured, 1 when one could not. A run
of everything at full size adds a line to `history.jsonl`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from noesium_stream.log.url import parse_url
from tests.bench import append, read, sqlite, tail
from tests.bench.harness import HISTORY, Figure, history_line, keep, progress
from tests.bench.settings import Settings
from tests.support.kafka import KafkaServer, start_kafka

Group = Callable[[Settings, KafkaServer], Awaitable[list[Figure]]]

ON_KAFKA: dict[str, Group] = {"append": append.measure, "read": read.measure, "tail": tail.measure}
GROUPS = ("append", "read", "sqlite", "tail")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep; the exit code."""
    asked = _parser().parse_args(arguments)
    groups = [name for name in GROUPS if name in asked.only]
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="noesium-bench-", dir=asked.folder))
        )
        settings = Settings(
            folder, asked.events, asked.batch, asked.repetitions, tail_events=asked.tail_events
        )
        figures, failed, broker = _measure(groups, settings, asked.bootstrap)
    line = history_line(figures, _described(settings, broker))
    for figure in figures if not asked.json else ():
        print("\n".join(figure.lines()), end="\n\n")
    if asked.json:
        print(json.dumps({**line, "failed": failed}))
    if _is_full(settings, groups, failed) or asked.history is not None:
        path = asked.history or HISTORY
        keep(line, path)
        progress(f"kept in {path}")
    return 1 if failed else 0


def _measure(
    groups: Sequence[str], settings: Settings, bootstrap: str | None
) -> tuple[list[Figure], dict[str, str], str]:
    """Figures, reasons of what could not be measured by group, and which broker served."""
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    source = "none"
    with ExitStack() as stack:
        kafka = None
        for name in groups:
            try:
                if name in ON_KAFKA:
                    if kafka is None:
                        kafka = _broker(stack, settings.folder, bootstrap)
                        source = kafka.source
                        progress(f"Kafka: {kafka.source} at {kafka.bootstrap}")
                    figures += asyncio.run(_of(ON_KAFKA[name](settings, kafka)))
                else:
                    figures += asyncio.run(_of(sqlite.measure(settings)))
            except (Exception, pytest.fail.Exception) as error:
                failed[name] = f"{type(error).__name__}: {error}"
                traceback.print_exc()
                progress(f"{name} could not be measured: {failed[name]}")
    return figures, failed, source


async def _of(measuring: Awaitable[list[Figure]]) -> list[Figure]:
    return await measuring


def _broker(stack: ExitStack, folder: Path, bootstrap: str | None) -> KafkaServer:
    if bootstrap is not None:
        return KafkaServer(bootstrap, "a given broker")
    return stack.enter_context(start_kafka(folder / "kafka"))


def _is_full(settings: Settings, groups: Sequence[str], failed: dict[str, str]) -> bool:
    default = Settings(settings.folder)
    full = settings.events >= default.events and settings.tail_events >= default.tail_events
    return full and not failed and len(groups) == len(GROUPS)


def _described(settings: Settings, broker: str) -> dict[str, object]:
    return {
        "events": settings.events,
        "batch": settings.batch,
        "repetitions": settings.repetitions,
        "tail_events": settings.tail_events,
        "broker": broker,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    commands = parser.add_subparsers(required=True)
    log = commands.add_parser("log", help="the log: append, read, SQLite, a tail's memory")
    log.add_argument("--events", type=_positive, default=Settings.events)
    log.add_argument("--batch", type=_positive, default=Settings.batch, help="events per transaction")
    log.add_argument("--repetitions", type=_positive, default=Settings.repetitions)
    log.add_argument("--tail-events", type=_positive, default=Settings.tail_events)
    log.add_argument("--only", type=_groups, default=GROUPS, help=f"some of {','.join(GROUPS)}")
    place = log.add_mutually_exclusive_group()
    place.add_argument("--bootstrap", help="a broker that is there; without one, one is started")
    place.add_argument("--log", dest="bootstrap", type=_bootstrap, metavar="kafka://HOST:PORT")
    log.add_argument("--folder", type=Path, help="where SQLite's files go (default: the temporary folder)")
    log.add_argument("--json", action="store_true", help="one JSON object on standard output")
    log.add_argument("--history", type=Path, help="keep this run there, whatever its size")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _groups(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in GROUPS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(GROUPS)}")
    return names


def _bootstrap(text: str) -> str:
    url = parse_url(text)
    if url.scheme != "kafka":
        raise argparse.ArgumentTypeError(f"{text} is no kafka:// URL")
    return ",".join(url.hosts)
