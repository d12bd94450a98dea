"""How the runs of a tree end when it is cancelled: waits for that, and says what was not stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal

from noesium_stream.client.views.refused_records import refused_records
from noesium_stream.client.views.run_list.run_list import RunList
from noesium_stream.client.views.runs import RunInfo
from noesium_stream.client.views.tree_reader import TreeMember, TreeReader, TreeRecord
from noesium_stream.client.views.waits import Wait, fold_event, waits_of
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.topics import partition_of
from noesium_stream.projection.builtin.execution import OF_RUNS
from noesium_stream.projection.builtin.execution_state import RunState

IDLE_S: Final = 2.0
"""How long nothing comes before runs that have not begun are looked at: a dead letter never begins."""

_LOOKED_AT: Final = 20
DEAD_LETTER: Final = "dead letter"
"""Status of a run whose command was refused: it never begins."""


@dataclass(frozen=True, slots=True)
class TreeRun:
    """A run of a tree.

    `status` is that of `RunInfo`, or `dead letter`: its command was refused, and it never begins. `reason`
    says why it ended without a result, or why it cannot go on. `waits_for` says what an open run waits for.
    `ended_ms` is when the log took its end, in milliseconds since the epoch. `depth` is the number of runs
    above it.
    """

    run_id: str
    agent_type: str
    parent_run_id: str | None
    capability_id: str
    depth: int
    status: str
    ended_ms: int | None = None
    reason: str | None = None
    waits_for: tuple[Wait, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether it has ended, or never begins."""
        return self.status == DEAD_LETTER or self.status in ENDINGS.values()


@dataclass(frozen=True, slots=True)
class Unstopped:
    """What a cancellation did not stop.

    `kind` is `completed` (the run had its result before it was told), `effect` (a call to the outside whose
    outcome is not known, in an ended or an open run), or `open` (a run that has not ended yet). `what` says
    more in one line, `effect_id` which effect.
    """

    kind: Literal["completed", "effect", "open"]
    run_id: str
    agent_type: str
    what: str
    effect_id: str | None = None


@dataclass(frozen=True, slots=True)
class TreeEnd:
    """The runs of a tree, callers before those that they have called, and what was not stopped.

    `asked`: whether one of them was asked to end, now or before.
    """

    run_id: str
    asked: bool
    runs: tuple[TreeRun, ...]
    unstopped: tuple[Unstopped, ...]

    @property
    def ended(self) -> bool:
        """Whether all of them have ended."""
        return all(run.ended for run in self.runs)


Check = Callable[[], Awaitable[None]]
"""Raises if there is nothing to wait for."""


async def until_ended(
    reader: TreeReader, log: EventLog, timeout_s: float | None, check: Check | None = None
) -> None:
    """Return when all runs that the reader finds have ended, or never begin, or when the time is over.

    `check` is called while nothing comes.

    Raises:
        LogUnavailableError
    """
    loop = asyncio.get_running_loop()
    end_s = None if timeout_s is None else loop.time() + timeout_s
    lost: set[TreeMember] = set()
    async with aclosing(reader.read()) as records:
        coming: asyncio.Future[TreeRecord | None] | None = None
        try:
            while not reader.members or not lost.issuperset(reader.open):
                coming = coming or asyncio.ensure_future(_next(records))
                left_s = IDLE_S if end_s is None else min(IDLE_S, end_s - loop.time())
                if left_s <= 0:
                    return
                if (await asyncio.wait((coming,), timeout=left_s))[0]:
                    if coming.result() is None:
                        return
                    coming = None
                else:
                    if check is not None:
                        await check()
                    lost |= await _refused(log, (one for one in reader.open if one not in lost))
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait((coming,))


async def _next(records: AsyncGenerator[TreeRecord, None]) -> TreeRecord | None:
    return await anext(records, None)


async def _refused(log: EventLog, members: Iterable[TreeMember]) -> set[TreeMember]:
    """Return those of the runs that have not begun whose command is a dead letter."""
    found: set[TreeMember] = set()
    waiting = [member for member in members if not member.started]
    for member in waiting[:_LOOKED_AT]:
        if await _is_dead_letter(log, member):
            found.add(member)
    return found


async def _is_dead_letter(log: EventLog, member: TreeMember) -> bool:
    refused = await refused_records(log, member.agent_type, member.run_id)
    if not refused:
        return False
    for generation in await open_generations(log, member.agent_type):
        partition, end = partition_of(member.run_id, generation.partitions), await log.end(generation.inbox)
        until = {partition: end[partition]}
        async for record in log.read(generation.inbox, {}, until=until, types=COMMANDS):
            place = Position(record.topic, record.partition, record.offset)
            if record.key == member.run_id and place in refused:
                return True
    return False


async def tree_end(log: EventLog, reader: TreeReader, asked_ms: int | None) -> TreeEnd:
    """Say how the runs of a tree stand now.

    Args:
        log: the log.
        reader: of the tree, which has read nothing yet.
        asked_ms: when the tree was asked to end, by the log's time; None: it was not.
    """
    states: dict[str, RunState] = {}
    async with aclosing(reader.read(follow=False)) as records:
        async for member, record, event in records:
            try:
                if event.event_type in OF_RUNS:
                    states[member.run_id] = fold_event(states.get(member.run_id), event, member.run_id)
            except WRONG as error:
                pass_over(record, error)
    known = await _infos(log, [one for one in reader.members.values() if one.ended is None])
    refused = await _refused(log, reader.open)
    runs: list[TreeRun] = []
    unstopped: list[Unstopped] = []
    for member in _in_order(reader.members.values()):
        state, info = states.get(member.run_id), known.get((member.agent_type, member.run_id))
        run = _run(member, state, info, is_refused=member in refused)
        runs.append(run)
        unstopped += _unstopped(run, state, asked_ms)
    root = runs[0].run_id
    return TreeEnd(root, asked_ms is not None, tuple(runs), tuple(unstopped))


async def _infos(log: EventLog, members: Iterable[TreeMember]) -> dict[tuple[str, str], RunInfo]:
    """Return what the log and the owners of their partitions say of open runs, by agent type and id."""
    wanted = {(member.agent_type, member.run_id) for member in members}
    if not wanted:
        return {}
    listed = RunList(log, sorted({agent_type for agent_type, _ in wanted}))
    found = [info for info in await listed.read() if (info.agent_type, info.run_id) in wanted]
    await listed.add_waits(found)
    return {(info.agent_type, info.run_id): info for info in found}


def _in_order(members: Iterable[TreeMember]) -> list[TreeMember]:
    """Sort runs so that each is followed by those that it has called, in the order of the calls."""
    children: dict[TreeMember | None, list[TreeMember]] = {}
    for member in members:
        children.setdefault(member.caller, []).append(member)
    found: list[TreeMember] = []
    waiting = children.get(None, [])[::-1]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])[::-1]
    return found


def _run(member: TreeMember, state: RunState | None, info: RunInfo | None, *, is_refused: bool) -> TreeRun:
    status = "requested" if state is None else state.status
    reason = None if state is None else state.error or state.reason
    waits = () if state is None else waits_of(state)
    if member.ended is not None:
        status, reason, waits = ENDINGS[member.ended], member.reason, ()
    elif is_refused:
        status, reason, waits = DEAD_LETTER, "its command is a dead letter", ()
    elif info is not None:
        status, reason, waits = info.status, info.reason or info.error or reason, info.waits_for or waits
    return TreeRun(
        member.run_id,
        member.agent_type,
        None if member.caller is None else member.caller.run_id,
        member.capability_id,
        member.depth,
        status,
        member.ended_ms,
        reason,
        waits,
    )


def _unstopped(run: TreeRun, state: RunState | None, asked_ms: int | None) -> list[Unstopped]:
    found: list[Unstopped] = []

    def add(kind: Literal["completed", "effect", "open"], what: str, effect_id: str | None = None) -> None:
        found.append(Unstopped(kind, run.run_id, run.agent_type, what, effect_id))

    if run.status == "completed" and asked_ms is not None and (run.ended_ms or 0) >= asked_ms:
        add("completed", "it had its result before it was told")
    for effect_id, effect in ({} if state is None else state.open_effects).items():
        if effect.status == "undecided":
            add("effect", f"the outcome of {effect.name} is unknown: {effect.reason or ''}", effect_id)
        elif effect.status == "running":
            add("effect", f"{effect.name} is in flight", effect_id)
    if not run.ended:
        waits = [wait.shown for wait in run.waits_for if wait.kind != "call"]
        why = ", ".join(waits) or run.reason or ""
        add("open", f"waits for {why}" if waits else f"{run.status}: {why}" if why else run.status)
    return found


Tell = Callable[[TreeMember], Awaitable[None]]
"""Asks a run to end, unless that was done."""


async def cancel_orphans(reader: TreeReader, tell: Tell) -> int:
    """Tell the open runs of a tree whose callers have ended; return how many runs are open.

    A run of an earlier release may have ended by an error and left them at work.
    """
    async with aclosing(reader.read(follow=False)) as records:
        async for _ in records:
            pass
    for member in reader.open:
        if member.caller is not None and member.caller.ended is not None:
            await tell(member)
    return len(reader.open)
