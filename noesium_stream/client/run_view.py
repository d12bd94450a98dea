"""A run for who reads it: result, events, questions, effects and the runs below it, all from the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from noesium_stream.client.shared.tail import closing
from noesium_stream.client.views.approvals import Approval, open_ones, read_questions
from noesium_stream.client.views.goals import tree_of
from noesium_stream.client.views.nested_approvals import APPROVAL_TYPES, questions_below
from noesium_stream.client.views.piece_reader import LIFE, PieceReader
from noesium_stream.client.views.refused_records import refused_records
from noesium_stream.client.views.run_list.run_list import WAITING
from noesium_stream.client.views.run_outcome import outcome_of
from noesium_stream.client.views.run_reader import RunReader, Since
from noesium_stream.client.views.runs import DEFERRAL_TYPES, RUN_TYPES, RunInfo, fold_record
from noesium_stream.client.views.tree_end import Check, TreeEnd, tree_end, until_ended
from noesium_stream.client.views.tree_reader import TreeReader
from noesium_stream.client.views.unresolved_effects import (
    UnresolvedEffect,
    open_ledgers,
    unresolved_effects,
)
from noesium_stream.client.views.waits import Place, fold_runs_at, place_of, waits_of
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import (
    CorruptRecordError,
    InputDiffersError,
    PermissionDeniedError,
    RunNotFoundError,
    RunTimeoutError,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.agent_calls import COMMANDS, input_of
from noesium_stream.event.rules.goal_fold import TYPES
from noesium_stream.event.rules.goal_tree import GoalTree
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.rules.stream_pieces import PIECE, Piece, PieceOrder
from noesium_stream.event.rules.stream_progress import PROGRESS, ProgressOrder, ToolProgress
from noesium_stream.log.generations import generations
from noesium_stream.log.port import EventLog, Position, Types
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of
from noesium_stream.projection.builtin.execution import OF_RUNS

if TYPE_CHECKING:
    from noesium_stream.client.views.run_index import RunIndex

_CANCEL: Final = ("run.cancel.requested",)


class RunView:
    """A run as the log has it: for who reads it, and writes nothing."""

    def __init__(
        self,
        log: EventLog,
        agent_type: str,
        run_id: str,
        *,
        since: Since | None = None,
        index: RunIndex | None = None,
        pieces_since: Mapping[int, int] | None = None,
    ) -> None:
        self.id = run_id
        self.agent_type = agent_type
        self._log = log
        self._since = since
        self._index = index
        self._pieces_since = pieces_since

    @property
    def since(self) -> Since | None:
        """Offsets of a journal below which there is no record of the run; None: they are not known."""
        return self._since

    @property
    def log(self) -> EventLog:
        """The log that the run is on."""
        return self._log

    def __repr__(self) -> str:
        return f"<Run {self.agent_type} {self.id}>"

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the end of the run and return its result.

        Args:
            timeout: a `timedelta`, or seconds; None waits for ever, 0 only checks the log.

        Raises:
            RunFailedError: the run ended with an error, or its command expired.
            RunCancelledError: the run was cancelled.
            PermissionDeniedError: the policy does not allow its command.
            RunTimeoutError: no outcome in time; the run goes on.
        """
        timeout_s = None if timeout is None else in_seconds(timeout, "timeout")
        waits = timeout_s != 0
        try:
            async with asyncio.timeout(timeout_s if waits else None):
                async with aclosing(self.records(follow=waits, types=ENDINGS)) as records:
                    async for record in records:
                        return outcome_of(record.unchecked)
            if not waits:
                raise TimeoutError
        except TimeoutError:
            raise RunTimeoutError(
                f"Run {self.id} of {self.agent_type} has no outcome after {timeout_s:g} s.",
                hint="It goes on by itself once a worker has it; ask again with the same id.",
            ) from None
        raise RunNotFoundError(f"The journal of {self.agent_type} ended without an outcome of {self.id}.")

    async def events(self, *, follow: bool = True) -> AsyncGenerator[EventEnvelope, None]:
        """Yield the run's journal in order, each event once, up to its terminal event.

        With `follow` wait for events to come; without it stop at the present end of the log.
        """
        async with aclosing(self.records(follow=follow)) as records:
            async for record in records:
                yield record.unchecked

    async def records(self, *, follow: bool = True, types: Types = None) -> AsyncGenerator[Record, None]:
        """Yield the run's journal as `events` does, with positions and headers; None: of all types."""
        reader = RunReader(self._log, self.agent_type, self.id, types, self._since, self._index)
        async with aclosing(reader.read(follow=follow)) as records:
            async for record in records:
                yield record

    async def goals(self) -> GoalTree:
        """What the run has set out to do, and how far it has come, as the log has it now.

        Raises:
            LogUnavailableError
        """
        return tree_of([record.unchecked async for record in self.records(follow=False, types=TYPES)])

    async def pieces(self, cursor: str | None = None) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of the run's answer as they are written, each once, until the run has ended.

        They are kept for an hour. Only `result` is the answer: pieces may be lost, and `Piece.restarted` says
        that a node begins again, so that what came of it before is void.

        Args:
            cursor: `Piece.cursor` of the last piece that was read; None: from the first one.

        Raises:
            ConfigError: the cursor is not one.
            LogUnavailableError
        """
        order = PieceOrder(self.id, self.agent_type, cursor)
        reader = PieceReader(self._log, self.id, PIECE, order, self._pieces_since)
        async with aclosing(reader.read(self.records(types=LIFE))) as pieces:
            async for piece in pieces:
                yield piece

    async def progress(self) -> AsyncGenerator[ToolProgress, None]:
        """Yield what tools tell of the run's calls while they go on, until the run has ended.

        It is for showing: kept for an hour, at most two a second of a call, and some may be lost.

        Raises:
            LogUnavailableError
        """
        order = ProgressOrder(self.id, self.agent_type)
        reader = PieceReader(self._log, self.id, PROGRESS, order, self._pieces_since)
        async with aclosing(reader.read(self.records(types=LIFE))) as told:
            async for one in told:
                yield one

    async def info(self) -> RunInfo:
        """Return the run's summary, as the log has it now; not whether a worker has its partition.

        Raises:
            RunNotFoundError: neither inbox nor journal has the run.
        """
        runs: dict[str, RunInfo] = {}
        place: Place | None = None
        for generation in await generations(self._log, self.agent_type):
            for topic in (generation.inbox, generation.journal):
                async for record in self._own(topic, RUN_TYPES):
                    fold_record(runs, record, self.agent_type)
                    if record.key == self.id:
                        place = place_of(place, generation, record)
        if self.id not in runs:
            raise RunNotFoundError(f"There is no run {self.id} of {self.agent_type} on this log.")
        info = runs[self.id]
        if info.status == "running" and place is not None:
            state = (await fold_runs_at(self._log, {self.id: place})).get(self.id)
            info.waits_for = () if state is None else waits_of(state)
            info.status = WAITING if info.waits_for else info.status
        return info

    async def commands(self) -> AsyncGenerator[EventEnvelope, None]:
        """Yield the commands in the inbox that start this run: its only trace before it has started."""
        async with aclosing(self.requests(COMMANDS)) as commands:
            async for event in commands:
                yield event

    async def requests(self, types: Types) -> AsyncGenerator[EventEnvelope, None]:
        """Yield the events of these types in the inbox that are for this run and were not refused."""
        refused: dict[Position, str] | None = None
        for generation in await generations(self._log, self.agent_type):
            async with aclosing(self._own(generation.inbox, types)) as records:
                async for record in records:
                    if refused is None:
                        refused = await refused_records(self._log, self.agent_type, self.id)
                    if Position(record.topic, record.partition, record.offset) in refused:
                        continue
                    try:
                        event = record.unchecked
                    except CorruptRecordError:
                        continue  # not a valid command: its owner makes it a dead letter
                    yield event

    async def _own(self, topic: str, types: Types) -> AsyncGenerator[Record, None]:
        """Yield the records of the run that a topic has now."""
        ends = await self._log.end(topic)
        partition = partition_of(self.id, len(ends))
        source = self._log.read(topic, {}, until={partition: ends[partition]}, types=types)
        async with closing(source) as records:
            async for record in records:
                if record.key == self.id or _is_about(record, self.id):
                    yield record

    async def check_input(self, input: Mapping[str, Any]) -> None:
        """Refuse a run that has another input under the same idempotency key.

        The first command in inbox order counts: call this after `Client.start`.

        Raises:
            InputDiffersError: the recorded input differs; the error names the run.
            StateError: the input has no JSON form.
        """
        wanted = canonical_json(to_json(dict(input), "input"))
        async for first in self._asked():
            if canonical_json(input_of(first.payload)) != wanted:
                raise InputDiffersError(
                    f"Run {self.id} of {self.agent_type} has this key already, and was asked something else.",
                    hint=f"Give another key, or the same input. What it was asked: noesium show {self.id}",
                )
            return

    async def _asked(self) -> AsyncGenerator[EventEnvelope, None]:
        """Yield the run's commands: the journal copy of the accepted one, then those in the inbox."""
        async with aclosing(self.records(follow=False, types=COMMANDS)) as records:
            async for record in records:
                if record.unchecked.payload.get("run_id") == self.id:
                    yield record.unchecked
        async with aclosing(self.commands()) as commands:
            async for event in commands:
                yield event

    async def unresolved_effects(self) -> list[UnresolvedEffect]:
        """List the effects of this run that wait for a person's decision, oldest first."""
        ledgers = await open_ledgers(self._log, self.agent_type, self.id)
        return [
            effect for ledger in ledgers.values() for effect in unresolved_effects(ledger, self.agent_type)
        ]

    async def abandoned_effects(self) -> list[UnresolvedEffect]:
        """List the effects whose outcome was unknown when the run ended: no decision is possible any more."""
        ledgers = await open_ledgers(self._log, self.agent_type, self.id, ended=True)
        return [
            effect
            for ledger in ledgers.values()
            for effect in unresolved_effects(ledger, self.agent_type, ended=True)
        ]

    async def cancel_request(self) -> EventEnvelope | None:
        """Return the first request to cancel the run, accepted or still in the inbox; None: there is none."""
        async with aclosing(self.records(follow=False, types=_CANCEL)) as records:
            async for record in records:
                if record.unchecked.payload.get("run_id") == self.id:  # and no run that it has called
                    return record.unchecked
        async with aclosing(self.requests(_CANCEL)) as requests:
            async for event in requests:
                return event
        return None

    async def tree_end(self, timeout: Duration | None = None) -> TreeEnd:
        """Wait until the run and all runs below it have ended; say how they ended, or how they stand.

        `timeout` is as of `cancel_tree`.
        """
        asked = await self.cancel_request()
        return await self._tree_end(None if asked is None else asked.timestamp_ms, timeout)

    async def _tree_end(
        self, asked_ms: int | None, timeout: Duration | None, check: Check | None = None
    ) -> TreeEnd:
        timeout_s = None if timeout is None else in_seconds(timeout, "timeout")
        await until_ended(self.tree_reader(OF_RUNS), self._log, timeout_s, check)
        return await tree_end(self._log, self.tree_reader(OF_RUNS), asked_ms)

    async def require_cancel(self) -> None:
        """Return if there is a request to cancel the run that its owner has not refused.

        Raises:
            PermissionDeniedError: its owner has refused those that there were.
        """
        if await self.cancel_request() is not None:
            return
        refused = await refused_records(self._log, self.agent_type, self.id)
        for generation in await generations(self._log, self.agent_type):
            async with aclosing(self._own(generation.inbox, _CANCEL)) as records:
                async for record in records:
                    why = refused.get(Position(record.topic, record.partition, record.offset))
                    if why is not None:
                        raise PermissionDeniedError(f"Run {self.id} was not cancelled: {why}.")

    def tree_reader(self, types: Types = None) -> TreeReader:
        """Make a reader of the records of the run and of all runs below it; `types` as for `records`."""
        return TreeReader(self._log, self.agent_type, self.id, types=types, index=self._index)

    async def questions(self) -> list[Approval]:
        """List the questions of the run and of all runs below it that wait for answers, oldest first."""
        return open_ones([*await self.approvals(), *await self._questions_below()])

    async def _questions_below(self) -> list[Approval]:
        return await questions_below(self._log, self.tree_reader(APPROVAL_TYPES))

    async def approvals(self) -> list[Approval]:
        """List the run's questions to people with their status, in the order of asking."""
        return (await read_questions(self._log, self.agent_type, self.id)).all()


def _is_about(record: Record, run_id: str) -> bool:
    """Whether a record of the partition concerns a run's deferred requests."""
    return record.event_type in DEFERRAL_TYPES and record.unchecked.payload.get("run_id") == run_id
