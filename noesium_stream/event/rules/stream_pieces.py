"""The order of a run's pieces, and which of them a reader gets: a pure fold over the stream topic.

Decision record: a stream is one execution of one node, so that parallel nodes have one each, and a node that
is executed again (crash, retry, answer to an interrupt) replaces only its own pieces. Executions are ordered
by (epoch of the partition's owner, number within that epoch). A process that has lost the partition and does
not know it yet writes under the older epoch: its pieces are dropped. The reader's memory is small enough to
be a part of its cursor; so one that comes back judges late and repeated pieces as if it had never left.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, NoReturn

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.standard.stream import StreamPiece

PIECE: Final = StreamPiece.TYPE
MAX_PIECE_BYTES: Final = 65_536
"""Size of a piece as JSON."""
MAX_RECORD_BYTES: Final = MAX_PIECE_BYTES + 32_768
"""Size of a record with a piece; a larger one is dropped before it is decoded."""
MOST_TASKS: Final = 128
"""Executions that a reader remembers; the oldest is forgotten first."""
MOST_MISSING: Final = 1_000_000
"""A sequence that is further ahead than this is not one of a writer of ours."""
_MAX_CURSOR: Final = 65_536
_MAX_OFFSET: Final = 2**63

REPEATED: Final = "came before"
REPLACED: Final = "belong to an execution that was replaced"
LATE: Final = "came after the last one"
_BENIGN: Final = frozenset({REPEATED, REPLACED, LATE})


class Attempt(NamedTuple):
    """One execution of a node; later ones are greater."""

    epoch: int
    execution: int


class _Seen(NamedTuple):
    attempt: Attempt
    next: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the answer of a run.

    Attributes:
        data: what the node wrote, any JSON value.
        node: the node that wrote it.
        step: superstep of the node.
        task_path: path of the task in its superstep.
        sequence: number of the piece in this execution of the node, from 0.
        attempt: the execution.
        restarted: the node is executed again: what came of it before is void.
        missing: pieces directly before this one that are lost.
        offset: offset of its record.
    """

    data: Any
    node: str
    step: int
    task_path: str
    sequence: int
    attempt: Attempt
    restarted: bool
    missing: int
    offset: int
    _seen: tuple[tuple[str, _Seen], ...] = field(default=(), repr=False, compare=False)

    def begun_again(self) -> Piece:
        """This piece, where all pieces before it are void."""
        return replace(self, restarted=True)

    @property
    def cursor(self) -> str:
        """A text with which a reader goes on after this piece."""
        seen = [[name, *one.attempt, one.next, int(one.ended)] for name, one in self._seen]
        form = [self.offset + 1, seen]
        return base64.urlsafe_b64encode(json.dumps(form, separators=(",", ":")).encode()).decode()


class PieceOrder:
    """What one reader has seen of a run's pieces.

    Args:
        run_id: the run.
        agent_type: its agent type: only its workers write its pieces.
        cursor: that of the last piece that was read; None: none was.

    Attributes:
        agent_id: the agent that has the run; None: not known yet.
        offset: the next offset to read; None: none is known.
        dropped: how many records were dropped, by reason.
        missing: how many pieces are lost.

    Raises:
        ConfigError: the cursor is not one.
    """

    def __init__(self, run_id: str, agent_type: str, cursor: str | None = None) -> None:
        self.agent_id: str | None = None
        self.offset: int | None = None
        self.dropped: Counter[str] = Counter()
        self.missing = 0
        self._run_id = run_id
        self._agent_type = agent_type
        self._seen: dict[str, _Seen] = {}
        if cursor is not None:
            self.offset, self._seen = _read_cursor(cursor)

    def take(self, event: EventEnvelope, offset: int) -> Piece | None:
        """Return the piece of a record of this run; None: it has none for this reader."""
        problem = self._problem(event)
        if problem is not None:
            self.drop(problem)
            return None
        payload, sequence = event.payload, event.stream_sequence or 0
        attempt = Attempt(payload["epoch"], payload["execution"])
        name = _short_name(payload["step"], payload["task_path"])
        before = self._seen.get(name)
        restarted = before is not None and attempt > before.attempt
        known = None if restarted else before
        reason = _reason_to_drop(known, attempt, sequence)
        if reason is not None:
            self.drop(reason)
            return None
        missing = sequence - (0 if known is None else known.next)
        self.missing += missing
        if event.stream_final:
            if not restarted:  # the next piece of a new execution is the one that tells of it
                self._remember(name, _Seen(attempt, sequence, True))
            return None
        self._remember(name, _Seen(attempt, sequence + 1, False))
        return Piece(
            data=payload.get("data"),
            node=payload["node"],
            step=payload["step"],
            task_path=payload["task_path"],
            sequence=sequence,
            attempt=attempt,
            restarted=restarted,
            missing=missing,
            offset=offset,
            _seen=tuple(self._seen.items()),
        )

    def drop(self, reason: str) -> None:
        """Count a record that is dropped."""
        self.dropped[reason] += 1

    def wrong(self) -> str:
        """Say how many records were dropped that no reader should meet, and why; empty: there were none."""
        wrong = {reason: count for reason, count in self.dropped.items() if reason not in _BENIGN}
        return ", ".join(f"{count} {reason}" for reason, count in wrong.items())

    def _problem(self, event: EventEnvelope) -> str | None:
        producer = event.producer
        if event.event_type != PIECE or event.stream_sequence is None or event.stream_sequence < 0:
            return "are no pieces"
        if event.payload["run_id"] != self._run_id:
            return "speak of another run"
        if producer.agent_type != self._agent_type or self.agent_id not in (None, producer.agent_id):
            return "are not from the agent of the run"
        return None

    def _remember(self, name: str, seen: _Seen) -> None:
        self._seen[name] = seen
        if len(self._seen) > MOST_TASKS:
            del self._seen[next(iter(self._seen))]


def _reason_to_drop(known: _Seen | None, attempt: Attempt, sequence: int) -> str | None:
    """Why a piece does not follow what was seen of its execution; None: it does."""
    first = 0 if known is None else known.next
    if known is not None and attempt < known.attempt:
        return REPLACED
    if known is not None and known.ended:
        return LATE
    if sequence < first:
        return REPEATED
    return "have a wrong number" if sequence - first > MOST_MISSING else None


def _short_name(step: int, task_path: str) -> str:
    """The name of a task in a cursor: a path may be long."""
    return hashlib.blake2s(f"{step}/{task_path}".encode(), digest_size=8).hexdigest()


def _read_cursor(cursor: str) -> tuple[int, dict[str, _Seen]]:
    if len(cursor) > _MAX_CURSOR:
        _refuse(cursor)
    try:
        form = json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
        offset, listed = form
        seen = {name: _seen_of(rest) for name, *rest in listed}
    except (binascii.Error, ValueError, TypeError, RecursionError):
        _refuse(cursor)
    if type(offset) is not int or not 0 <= offset < _MAX_OFFSET or len(seen) > MOST_TASKS:
        _refuse(cursor)
    if not all(type(name) is str for name in seen):
        _refuse(cursor)
    return offset, seen


def _seen_of(numbers: list[Any]) -> _Seen:
    epoch, execution, next_, ended = numbers
    for number in (epoch, execution, next_, ended):
        if type(number) is not int or not 0 <= number < _MAX_OFFSET:
            raise ValueError
    return _Seen(Attempt(epoch, execution), next_, bool(ended))


def _refuse(cursor: str) -> NoReturn:
    raise ConfigError(
        f"{short(cursor)} is not a cursor of pieces.", hint="Give `Piece.cursor` of the last piece, or None."
    )
