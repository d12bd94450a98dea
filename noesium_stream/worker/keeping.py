"""When requests are parked (`kept`), and when what is parked is taken up.

What an owner cannot take and another one may is parked, what comes in for its run with it. An owner begins
with a look at all that is parked; somebody who does not want to wait cancels the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from noesium_stream.errors import NoesiumError, RecordTooLargeError
from noesium_stream.event.calls import COMMANDS
from noesium_stream.event.standard.request import BEHIND
from noesium_stream.log.record import Record
from noesium_stream.worker.decisions import Accepted, DecidingOwner, Decisions, Judgement, Known, place_of
from noesium_stream.worker.inbox import Unready, Verdict
from noesium_stream.worker.kept import (
    HEADER_BYTES,
    KeptRequests,
    is_keepable,
    may_be_command,
    parked,
    resumed,
)
from noesium_stream.worker.parking import Parking
from noesium_stream.worker.state import PartitionState

PARKED_AT_ONCE: Final = 16
"""Runs whose parked requests are looked at in one commit: these may be large."""


class Keeping:
    """What is parked of one partition.

    Args:
        owner: of the partition.
        state: of the partition.
        parking: of the partition.
        decisions: of the partition.

    Attributes:
        requests: what is parked.
    """

    def __init__(
        self, owner: DecidingOwner, state: PartitionState, parking: Parking, decisions: Decisions
    ) -> None:
        self.requests = KeptRequests(owner, state)
        self._owner = owner
        self._state = state
        self._parking = parking
        self._decisions = decisions

    def is_behind(self, record: Record, verdict: Judgement, known: Known, parked_now: bool) -> bool:
        """Whether it was sent to a run whose command is parked.

        Args:
            record: that came in.
            verdict: on it.
            known: runs that are open, have ended, or have a command that waits.
            parked_now: whether something of its run is parked by the commit that is being made.
        """
        run_id = record.key
        if verdict is not Verdict.PASS or not (parked_now or run_id in self.requests):
            return False
        if run_id in self._decisions.loaded or run_id in known or record.envelope.event_type in COMMANDS:
            return False
        # Once there is a next generation, the run may be at work there, whatever else of it is parked here.
        return not self._decisions.forwarding.grown or parked_now or self.requests.may_have_command(run_id)

    def park(self, record: Record, verdict: Judgement, accepted: Accepted) -> set[str]:
        """Keep a record; the run that what follows it waits with, if it has to.

        What cannot be kept is a dead letter.
        """
        if not is_keepable(record):
            error = RecordTooLargeError(f"its headers have more than {HEADER_BYTES} bytes")
            self._decisions.refuse(record, error, accepted)
            return set()
        reason = verdict.reason if isinstance(verdict, Unready) else BEHIND
        accepted.outgoing += parked(self._owner, record, reason)
        accepted.told.append(f"{place_of(record)} is parked: {reason}")
        return set() if self._decisions.forwarding.grown and not may_be_command(record) else {record.key}

    def withdraw(self, cancel: Record, accepted: Accepted) -> None:
        """Nobody wants what is parked for a run: it begins and is cancelled, or is a dead letter."""
        at = len(accepted.outgoing)
        offsets: list[int] = []
        refused: str | None = None
        for kept in self.requests.of(cancel.key):
            offsets += kept.offsets
            verdict = self._decisions.judged_whatever_version(kept.record)
            if isinstance(verdict, NoesiumError):
                refused = verdict.message
            self._decisions.settle(kept.record, verdict, accepted, kept.origin)
        accepted.outgoing.insert(at, resumed(self._owner, cancel.key, offsets, refused))
        if not self._decisions.settle(cancel, self._decisions.judged(cancel, self._state), accepted):
            self._decisions.pass_over(cancel, accepted)

    async def take_all(self) -> None:
        """Take what the owners before could not take, and this one can."""
        run_ids = self.requests.runs()
        for first in range(0, len(run_ids), PARKED_AT_ONCE):
            some = run_ids[first : first + PARKED_AT_ONCE]
            with self._parking.staying(some):
                self._decisions.begin_later(await self._retry_all(some))
            await asyncio.sleep(0)  # where nothing can be taken, nothing else gives way

    async def _retry_all(self, run_ids: Collection[str]) -> Accepted:
        decisions = self._decisions
        await decisions.forwarding.prepare()
        while True:
            await self._parking.bring_back(run_ids)
            async with decisions.alone():
                decisions.require_open()
                if any(run_id in self._parking for run_id in run_ids):
                    continue
                await decisions.outcomes_known(run_ids)
                accepted = Accepted()
                for run_id in run_ids:
                    self.retry(run_id, accepted)
                await decisions.commit(accepted)
                return accepted

    def retry(self, run_id: str, accepted: Accepted) -> None:
        """Take what is parked of a run, as far as that can be done; the rest keeps its order."""
        at = len(accepted.outgoing)
        offsets: list[int] = []
        stays = anew = False
        refused: str | None = None
        for kept in self.requests.of(run_id):
            verdict = self._decisions.judged(kept.record, self._state)
            reason = kept.reason
            if isinstance(verdict, Unready) and not self._state.has_ended(run_id):
                stays, reason = True, verdict.reason
            elif not (stays and verdict is Verdict.PASS and run_id not in self._state):
                if isinstance(verdict, NoesiumError):
                    refused = verdict.message
                self._decisions.settle(kept.record, verdict, accepted, kept.origin)
                offsets += kept.offsets
                continue
            anew = anew or reason != kept.reason  # and what follows it: they keep their order
            if anew:
                accepted.outgoing += parked(self._owner, kept.record, reason, kept.origin)
                offsets += kept.offsets
        if offsets:
            accepted.outgoing.insert(at, resumed(self._owner, run_id, offsets, refused))
