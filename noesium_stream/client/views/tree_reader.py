"""Follows a run and all runs below it, with one reader for each journal.

A run of the tree is known when its caller's record of the call is read. Its own records may have passed by
then, so each new run is looked for by a bounded reader up to where the journal's reader stands, which waits
for that at the next record of the run. Runs that are found together are looked for together. What is read of
a run is in order, each record once, and after its call.

A run has no record before its call. So a run that was called after the reading of its journal began is looked
for from there on only (`_Lane.begins_after`), and not in the whole journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from noesium_stream.client.shared.tail import closing
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS, caller_of
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import RequestForwarded
from noesium_stream.log.generations import Generation, generations, open_generations
from noesium_stream.log.headers import CE_TYPE, header_value
from noesium_stream.log.port import EventLog, Position, Types
from noesium_stream.log.record import Record
from noesium_stream.log.topics import agent_name, partition_of

if TYPE_CHECKING:
    from noesium_stream.client.views.run_index import RunIndex

_FORWARDED: Final = RequestForwarded.TYPE
_OF_TREE: Final = (*CALLS, *ANSWERS, *ENDINGS, _FORWARDED)
_QUEUED: Final = 500


@dataclass(slots=True, eq=False)
class TreeMember:
    """A run of the tree, as far as its records were read.

    Attributes:
        run_id: its id.
        agent_type: its agent type.
        caller: the run that has called it; None: the root.
        capability_id: what it was called for; empty: it is the root.
        depth: number of runs above it.
        called_ms: when the log took the call, in milliseconds since the epoch.
        called_at: where its caller's journal has the call.
        started: whether a record of it was read.
        answered: whether its caller has accepted its answer.
        ended: the type of its terminal event; None: it is open.
        ended_ms: when the log took that.
        reason: why it ended without a result, as far as that says so.
    """

    run_id: str
    agent_type: str
    caller: TreeMember | None = None
    capability_id: str = ""
    depth: int = 0
    called_ms: int = 0
    called_at: Position | None = None
    started: bool = False
    answered: bool = False
    ended: str | None = None
    ended_ms: int | None = None
    reason: str | None = None
    seen: int = 0

    @property
    def path(self) -> tuple[TreeMember, ...]:
        """Return the runs from the root to this one."""
        return (self,) if self.caller is None else (*self.caller.path, self)


class TreeRecord(NamedTuple):
    """A record of a run of the tree."""

    member: TreeMember
    record: Record
    event: EventEnvelope


@dataclass(eq=False)
class _Lane:
    """The reader of one journal: where it stands, and the runs that it has records of.

    `opened` is its end when it was opened, and `marks` are the ends of all journals that were read by then,
    and of itself, a moment later.
    """

    agent_type: str
    generation: Generation
    starts: Mapping[int, int]
    opened: Mapping[int, int]
    marks: Mapping[str, Mapping[int, int]]
    position: dict[int, int]
    ready: dict[str, asyncio.Event] = field(default_factory=dict)
    new: dict[str, tuple[int, int]] = field(default_factory=dict)
    looking: asyncio.Task[None] | None = None

    def begins_after(self, call: Position, marks: Mapping[int, int]) -> bool:
        """Whether a call was made after this journal was opened; `marks` if its journal was opened later."""
        mark = self.marks.get(call.topic, marks).get(call.partition)
        return mark is not None and call.offset >= mark


class TreeReader:
    """Reads the records of a run and of all runs below it, as they come.

    Args:
        log: the log that has them.
        agent_type: agent type of the root.
        run_id: id of the root.
        types: event types to read; None: all. Those that the tree is made of are read all the same.
        index: the index on this machine.

    Attributes:
        members: the runs that were found, by id, callers before those that they have called.
    """

    def __init__(
        self,
        log: EventLog,
        agent_type: str,
        run_id: str,
        *,
        types: Types = None,
        index: RunIndex | None = None,
    ) -> None:
        self.members: dict[str, TreeMember] = {}
        self._open: dict[str, TreeMember] = {}
        self._log = log
        self._root = TreeMember(run_id, agent_type)
        self._types = None if types is None else tuple(dict.fromkeys((*types, *_OF_TREE)))
        self._index = index
        self._lanes: dict[str, list[_Lane]] = {}
        self._opened: dict[str, Mapping[int, int]] = {}
        self._queue: asyncio.Queue[Record | _Lane | Exception] = asyncio.Queue(_QUEUED)
        self._tasks: set[asyncio.Task[None]] = set()
        self._follows = True

    @property
    def open(self) -> list[TreeMember]:
        """Return the runs whose end was not read."""
        return list(self._open.values())

    async def read(self, *, follow: bool = True) -> AsyncGenerator[TreeRecord, None]:
        """Yield the records until all runs of the tree have ended; close it to stop before.

        Without `follow` yield those that the log has now.

        Raises:
            LogUnavailableError, LogTruncatedError, TopicNotFoundError
        """
        self._follows = follow
        try:
            await self._add(self._root)
            while self._open:
                found = await (self._queue.get() if follow else self._found())
                if found is None:
                    return
                if isinstance(found, Exception):
                    raise found
                if isinstance(found, _Lane):
                    await self._follow_on(found.agent_type)  # a run of the tree was handed on
                    continue
                member = self.members[found.key]
                event = self._take(member, found)
                if event is not None:
                    child = _called(member, event, found)
                    if child is not None and child.run_id not in self.members:
                        await self._add(child)
                    yield TreeRecord(member, found, event)
        finally:
            await self._close()

    async def _found(self) -> Record | _Lane | Exception | None:
        """Return what the bounded readers find next; None: they have found all."""
        while self._queue.empty() and self._tasks:
            waiting = asyncio.ensure_future(self._queue.get())
            await asyncio.wait((waiting, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            waiting.cancel()
            await asyncio.wait((waiting,))
        return None if self._queue.empty() else self._queue.get_nowait()

    def _take(self, member: TreeMember, record: Record) -> EventEnvelope | None:
        """Note a record of a run; None: it is repeated, wrong, or follows the end."""
        number = member.seen if record.number is None else record.number
        if number < member.seen or member.ended is not None:
            return None
        try:
            event = record.unchecked
            payload = event.payload
            if event.event_type in ENDINGS and payload["run_id"] == member.run_id:
                member.ended, member.ended_ms = event.event_type, record.timestamp_ms
                del self._open[member.run_id]
                reason = payload.get("reason") or payload.get("message")
                member.reason = reason if isinstance(reason, str) else None
            elif event.event_type in ANSWERS and payload["call_id"] in self.members:
                child = self.members[payload["call_id"]]
                child.answered = child.answered or child.caller is member
        except WRONG as error:
            pass_over(record, error)
            return None
        member.seen, member.started = number + 1, True
        return event

    # -- the journals --------------------------------------------------------------------------------

    async def _add(self, member: TreeMember) -> None:
        lanes = await self._lanes_of(member.agent_type)
        self.members[member.run_id] = self._open[member.run_id] = member
        for lane in lanes:
            await self._look(lane, member)

    async def _lanes_of(self, agent_type: str) -> list[_Lane]:
        if agent_type not in self._lanes:
            self._lanes[agent_type] = []
            await self._follow_on(agent_type)
        return self._lanes[agent_type]

    async def _follow_on(self, agent_type: str) -> None:
        """Read the journals of all generations that the agent type has now."""
        lanes = self._lanes[agent_type]
        if not await open_generations(self._log, agent_type):
            return  # nobody of that type has ever been asked anything
        for generation in (await generations(self._log, agent_type))[len(lanes) :]:
            starts = await self._log.beginning(generation.journal)
            opened = await self._log.end(generation.journal)
            # One after the other: what lies behind a mark was appended when the end before it was known.
            journals = [generation.journal, *self._opened]
            marks = {journal: await self._log.end(journal) for journal in journals}
            lane = _Lane(agent_type, generation, starts, opened, marks, dict(opened))
            self._opened[generation.journal] = opened
            lanes.append(lane)
            for member in [one for one in self.members.values() if one.agent_type == agent_type]:
                await self._look(lane, member)
            if self._follows:
                self._begin(self._follow(lane))

    async def _look(self, lane: _Lane, member: TreeMember) -> None:
        """Look for a run below where the journal's reader stands."""
        run_id, call = member.run_id, member.called_at
        partition = partition_of(run_id, lane.generation.partitions)
        first = lane.starts[partition]
        if call is not None and lane.begins_after(call, self._opened.get(call.topic, {})):
            first = lane.opened[partition]
        elif self._index is not None:
            first = max(first, await self._index.start(lane.generation.journal, run_id) or 0)
        # Nothing is awaited between these two: the reader passes over no record of the run.
        lane.ready[run_id] = asyncio.Event()
        lane.new[run_id] = first, lane.position[partition]
        if lane.looking is None or lane.looking.done():
            lane.looking = self._begin(self._catch_up(lane))

    async def _follow(self, lane: _Lane) -> None:
        cursor = dict(lane.position)
        async with closing(self._log.read(lane.generation.journal, cursor, types=self._types)) as records:
            async for record in records:
                lane.position[record.partition] = record.offset + 1
                if record.key in lane.ready:
                    await lane.ready[record.key].wait()
                    await self._queue.put(record)
                elif _handed_on(record) in lane.ready:
                    await self._queue.put(lane)

    async def _catch_up(self, lane: _Lane) -> None:
        while lane.new:
            new, lane.new = lane.new, {}
            for partition in {partition_of(run_id, lane.generation.partitions) for run_id in new}:
                some = {
                    run_id: span
                    for run_id, span in new.items()
                    if partition_of(run_id, lane.generation.partitions) == partition
                }
                await self._search(lane, partition, some)
            for run_id in new:
                lane.ready[run_id].set()

    async def _search(self, lane: _Lane, partition: int, spans: Mapping[str, tuple[int, int]]) -> None:
        """Queue the records of these runs that lie between the offsets of each."""
        first, until = min(one for one, _ in spans.values()), max(end for _, end in spans.values())
        if first >= until:
            return
        journal = lane.generation.journal
        source = self._log.read(
            journal, {partition: first}, until={partition: until}, types=self._types, partitions=(partition,)
        )
        async with closing(source) as records:
            async for record in records:
                if record.key in spans:
                    if record.offset < spans[record.key][1]:
                        await self._queue.put(record)
                elif _handed_on(record) in spans:
                    await self._queue.put(lane)

    # -- its tasks -----------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watched(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            await self._queue.put(error)

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _called(member: TreeMember, event: EventEnvelope, record: Record) -> TreeMember | None:
    """Return the run that this event of a run calls; None: it calls none, or not one that there can be."""
    payload = event.payload
    if event.event_type not in CALLS or caller_of(payload) != member.run_id:
        return None
    run_id, agent_type = payload.get("run_id"), payload.get("target_agent_type")
    if not isinstance(run_id, str) or not isinstance(agent_type, str):
        return None
    try:
        agent_name(agent_type)
    except ConfigError:
        return None
    capability_id = str(payload.get("capability_id"))
    place = Position(record.topic, record.partition, record.offset)
    return TreeMember(run_id, agent_type, member, capability_id, member.depth + 1, record.timestamp_ms, place)


def _handed_on(record: Record) -> str | None:
    """Return the run of a request that was handed on to the next generation; None: it is no such record."""
    if header_value(record.raw_headers, CE_TYPE) != _FORWARDED.encode():
        return None
    try:
        return str(record.unchecked.payload["run_id"])
    except WRONG as error:
        pass_over(record, error)
        return None
