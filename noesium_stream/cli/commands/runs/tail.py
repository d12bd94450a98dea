"""`noesium tail`: the events of all agents, each once, as they come."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict

import click

from noesium_stream.cli.eventline import event_line
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.session import asynchronous, closing, json_option, log_option, opened
from noesium_stream.clock import SystemClock
from noesium_stream.errors import CorruptRecordError
from noesium_stream.log import Cursor, EventLog, Record, TopicKind

_KINDS = frozenset({TopicKind.JOURNAL, TopicKind.EVENTS, TopicKind.REGISTRY, TopicKind.DLQ})
_NEW_TOPICS_EVERY_S = 2.0
_REMEMBERED = 100_000
_QUEUED = 1_000


@click.command("tail")
@click.option(
    "-t", "--type", "types", multiple=True, metavar="PREFIX", help="Only types that begin so (repeatable)."
)
@click.option(
    "--topic", "topics", multiple=True, help="Only this topic (repeatable). [default: journals, facts, ...]"
)
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=20, show_default=True, help="How many past events."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new events until Ctrl-C.")
@log_option
@json_option
@asynchronous
async def tail_command(
    types: tuple[str, ...],
    topics: tuple[str, ...],
    lines: int,
    follow: bool,
    log_url: str | None,
    as_json: bool,
) -> None:
    """Print the last events of all agents; with --follow also those to come.

    Each event is printed once, even if the journals of two agents have it.

    Past events of several agents are sorted by the log's append time. An unreadable record is reported on
    standard error, and the tail goes on.
    """
    async with opened(log_url) as log:
        tail = _Tail(log, types, as_json)
        names = list(topics) or await _topics(log)
        ends = {name: await log.end(name) for name in names}
        await tail.past(ends, lines)
        if lines and not follow and tail.has_printed_nothing:
            note(f"There are no such events on {log.url}.")
        if follow:
            await tail.follow(ends, watch_for_new=not topics)


async def _topics(log: EventLog) -> list[str]:
    topology = log.topology
    return [topic.name for topic in await log.topics() if topology.kind(topic.name) in _KINDS]


class _Tail:
    """Prints records of many topics, each event once."""

    def __init__(self, log: EventLog, types: tuple[str, ...], as_json: bool) -> None:
        self._log = log
        self._prefixes = types
        self._as_json = as_json
        self._seen: OrderedDict[str, None] = OrderedDict()

    @property
    def has_printed_nothing(self) -> bool:
        """Whether no event was printed so far."""
        return not self._seen

    async def past(self, ends: dict[str, dict[int, int]], count: int) -> None:
        """Print the last `count` events before `ends`."""
        newest: list[tuple[int, int, Record]] = []
        number = 0
        for topic, end in ends.items():
            start = await self._start(topic, end, count)
            async for record in self._log.read(topic, start, until=end):
                if self._wants(record):
                    number += 1
                    heapq.heappush(newest, (record.timestamp_ms, number, record))
                    if len(newest) > 2 * count:  # twice: copies are dropped only when they are printed
                        heapq.heappop(newest)
        chosen: OrderedDict[str, Record] = OrderedDict()
        for _, _, record in sorted(newest, key=lambda item: item[:2]):
            event_id = self._event_id(record)
            if event_id is not None:
                chosen.setdefault(event_id, record)
        for record in list(chosen.values())[max(0, len(chosen) - count) :]:
            self._print(record)

    async def follow(self, ends: dict[str, dict[int, int]], *, watch_for_new: bool) -> None:
        """Print records after `ends` until cancelled, also those of topics that are created meanwhile."""
        queue: asyncio.Queue[Record] = asyncio.Queue(_QUEUED)
        async with asyncio.TaskGroup() as tasks:
            for topic, end in ends.items():
                tasks.create_task(self._pump(topic, end, queue))
            if watch_for_new:
                tasks.create_task(self._watch(set(ends), queue, tasks))
            while True:
                self._print(await queue.get())

    async def _start(self, topic: str, end: dict[int, int], count: int) -> Cursor:
        """Find the offsets to start from: near the end without a filter, else the beginning."""
        first = await self._log.beginning(topic)
        if self._prefixes:
            return first
        # Twice the count: copies and the gaps that transactions leave take offsets, too.
        return {p: max(first.get(p, 0), offset - 2 * count) for p, offset in end.items()}

    async def _pump(self, topic: str, cursor: Cursor, queue: asyncio.Queue[Record]) -> None:
        async with closing(self._log.read(topic, cursor)) as records:
            async for record in records:
                if self._wants(record):
                    await queue.put(record)

    async def _watch(self, known: set[str], queue: asyncio.Queue[Record], tasks: asyncio.TaskGroup) -> None:
        clock = SystemClock()
        while True:
            await clock.sleep(_NEW_TOPICS_EVERY_S)
            for topic in set(await _topics(self._log)) - known:
                known.add(topic)
                tasks.create_task(self._pump(topic, {}, queue))

    def _wants(self, record: Record) -> bool:
        if not self._prefixes:
            return True
        try:
            return record.event_type.startswith(self._prefixes)
        except CorruptRecordError:
            return True  # it is reported when it is printed

    def _event_id(self, record: Record) -> str | None:
        try:
            return record.unchecked.event_id
        except CorruptRecordError as error:
            note(f"error: {error.message}")
            return None

    def _print(self, record: Record) -> None:
        event_id = self._event_id(record)
        if event_id is None or event_id in self._seen:
            return
        self._seen[event_id] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        if self._as_json:
            position = f"{record.topic}/{record.partition}@{record.offset}"
            out_json({**record.unchecked.to_dict(), "position": position}, lines=True)
        else:
            out(event_line(record.unchecked))
