"""Requests that this worker cannot take and another one may: deferred in the partition's own journal.

A record of the inbox is deferred when its schema is not known here (its Avro schema, its event type, or a
major version of that), or when it is a command that asks for a version which is not carried here; and so is
what is sent to a run whose command is deferred. The commit that decides on it writes it as it is
(`request.parked`), so that the inbox need not hold it, other requests pass it, and no file has to be there
when the next owner comes. A new owner judges what is deferred as if it had just come in: `request.resumed`
takes up what it can take, in the same commit, and the run starts out of turn.

Somebody who does not want to wait cancels the run: a command that can be read starts and is cancelled, what
cannot be read becomes a dead letter.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from noesium_stream.event.standard import RequestParked
from noesium_stream.log.port import Position
from noesium_stream.log.record import Record
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.journal_records import may_be_command
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.state_file import row_sum


class Deferred(NamedTuple):
    """A deferred request.

    Attributes:
        record: as it came in; its position is that of its `request.parked` in the journal.
        origin: where it came in.
        reason: why it is deferred.
        offsets: of all parts of it in the journal.
    """

    record: Record
    origin: Position
    reason: str
    offsets: tuple[int, ...]


class DeferredRequests:
    """The deferred requests of a partition.

    Args:
        context: of the partition.
        state: of the partition.
    """

    def __init__(self, context: PartitionContext, state: PartitionState) -> None:
        self._context = context
        self._state = state

    def __len__(self) -> int:
        return self._state.manifest.counts["deferred"]

    def __contains__(self, run_id: object) -> bool:
        """Whether a request of this run is deferred."""
        if not len(self):
            return False
        return bool(self._state.file.read("SELECT 1 FROM deferred WHERE run_id = ? LIMIT 1", (run_id,)))

    def of(self, run_id: str) -> list[Deferred]:
        """Those of a run, in order."""
        return self._read(run_id) if run_id in self else []

    def may_have_command(self, run_id: str) -> bool:
        """Whether one of them may be the command of the run."""
        return any(may_be_command(request.record) for request in self.of(run_id))

    def runs(self) -> list[str]:
        """The runs that have some, in the order of the first of each."""
        query = "SELECT run_id FROM deferred GROUP BY run_id ORDER BY min(journal_offset)"
        return [run_id for (run_id,) in self._state.file.read(query)]

    def reasons(self, most: int) -> list[str]:
        """What they wait for, at most so many, each once."""
        found = self._state.file.read("SELECT DISTINCT reason FROM deferred ORDER BY reason LIMIT ?", (most,))
        return [reason for (reason,) in found]

    def _read(self, run_id: str) -> list[Deferred]:
        columns = "journal_offset, run_id, reason, body, sum"
        where = "run_id = ? ORDER BY journal_offset"
        rows = self._state.file.read(f"SELECT {columns} FROM deferred WHERE {where}", (run_id,))
        found: list[Deferred] = []
        parts: list[tuple[int, bytes]] = []
        for offset, key, reason, body, found_sum in rows:
            if not isinstance(body, bytes) or row_sum(offset, key, reason, value=body) != found_sum:
                raise self._state.file.broken(f"the row of the deferred request {offset} is damaged")
            payload = orjson.loads(body)
            parts.append((offset, base64.b64decode(payload["record_base64"])))
            if len(parts) == payload["parts"]:
                found.append(self._request(payload, parts))
                parts = []
        return found

    def _request(self, payload: dict[str, object], parts: Sequence[tuple[int, bytes]]) -> Deferred:
        said = RequestParked.model_validate(payload)
        context = self._context
        record = Record(
            context.journal,
            context.journal_partition,
            parts[0][0],
            said.logged_ms,
            said.run_id,
            [(name, text.encode("latin-1")) for name, text in said.headers],
            b"".join(value for _, value in parts),
            context.log.decoder,
        ).signed_at(said.topic, said.partition)
        origin = Position(said.topic, said.partition, said.offset)
        return Deferred(record, origin, said.reason, tuple(offset for offset, _ in parts))
