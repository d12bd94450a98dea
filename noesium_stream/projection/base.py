"""Projections (RFC-0004 §4, RFC-1001 §8.1): local state as a pure function of the events so far."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from noesium_stream.errors import (
    CorruptRecordError,
    EventError,
    EventValidationError,
    ImpureProjectionError,
    ProjectionLoadError,
)
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import Cursor, EventLog
from noesium_stream.log.record import Record
from noesium_stream.projection.fold_guard import FOLDING, Nondeterministic

TState = TypeVar("TState")

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

_OF_THE_FOLD = ("initial_state", "apply", "key", "keys", "merge", "migrate")
JOURNALS = "agent.*.journal*"
FACTS = "events.*"


class BaseProjection(ABC, Generic[TState]):
    """Pure fold (State, Event) → State. No clock, randomness, I/O, model or unordered iteration (law 6).

    With `key` the state is a table: `apply` gets the state of one row, or `initial_state()` for a new key,
    and returns the row's new state; None removes the row. Without `key` there is one state per partition. The
    type argument defines how a state is stored: any type that pydantic can validate (models, dataclasses,
    TypedDicts, ints, lists, …), otherwise plain JSON values.

    Attributes:
        name: the projection's name; lower-case letters, digits, `-` and `_`.
        version: the version; another version is another projection, built beside this one.
        events: domain events of the user's own program that it reads; the standard events are always known.
        event_types: the event types that it needs (exact, or a prefix ending in `.`); None takes all. Other
            types are skipped by their headers, without decoding.
        topics: topic patterns without the namespace; the default is every journal and all facts.
        event_versions: the major versions of event types that it is written for (`{"invoice.created": "1"}`).
            It refuses to start if the newest known version is another one. Types not listed come in their
            newest version.
        headers_only: passes `key` and `apply` only the record's position and headers (`EventHeaders`), which
            is several times faster. Invalid content of an event that nobody decodes then stays unnoticed.
        include_copies: whether to fold a journal's copies of events that a run received from other runs. Then
            each run's journal is complete, and an event from one run to another is seen in both.
        in_place: whether `apply` changes the given state and returns it.
        on_error: the reaction to an event that `apply` cannot take: `hold` the later events of its key as
            dead letters, or `stop` the projection.
        local_keys: says that each partition may keep a row of its own for a key. Without it, and without
            `merge`, an event is refused if its key is not its partition key, and so is a state without keys
            of several partitions. A handler's state needs it in those cases whether it has `merge` or not.
        takes_erased: whether `key` and `apply` get events whose data subject was erased: their payloads have
            stand-ins (`event.sealing.seal.is_erased` tells). Otherwise they are passed over.
        previous_version: the class of the previous version, where a migration event may let this version take
            over its state (`versions/migration_event.py`); keep that class unchanged. Without such an event
            this version folds everything.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    events: ClassVar[tuple[type[DomainEvent], ...]] = ()
    event_types: ClassVar[tuple[str, ...] | None] = None
    topics: ClassVar[tuple[str, ...]] = (JOURNALS, FACTS)
    event_versions: ClassVar[Mapping[str, str]] = {}
    headers_only: ClassVar[bool] = False
    include_copies: ClassVar[bool] = False
    in_place: ClassVar[bool] = False
    on_error: ClassVar[str] = "hold"
    local_keys: ClassVar[bool] = False
    takes_erased: ClassVar[bool] = False
    previous_version: ClassVar[type[BaseProjection[Any]] | None] = None

    @abstractmethod
    def initial_state(self) -> TState:
        """The state before the first event; a new one at each call."""

    @abstractmethod
    def apply(self, state: TState, event: EventEnvelope) -> TState | None:
        """The state after one more event."""

    def key(self, event: EventEnvelope) -> str | None:
        """The row that this event belongs to; None skips the event.

        If the key is not the event's partition key, one row may have parts in several partitions: declare
        `merge`, or `local_keys` if all events of a key lie in one all the same.
        """
        return ""

    def keys(self, event: EventEnvelope) -> Sequence[str]:
        """The rows that this event belongs to, each once. Declare it instead of `key` if there are several.

        An event is folded into all of its rows or into none, so `on_error` has to be `stop`.
        """
        key = self.key(event)
        return () if key is None else (key,)

    def merge(self, a: TState, b: TState) -> TState:
        """The merged state of two partitions; associative and commutative.

        Raises:
            NotImplementedError: the projection does not declare it.
        """
        raise NotImplementedError

    def migrate(self, key: str, state: Any) -> TState | None:
        """Convert a row of `previous_version` to this version; None drops the row. Pure, as `apply`.

        Raises:
            NotImplementedError: the projection does not declare it.
        """
        raise NotImplementedError

    def of_version(self, version: int) -> AnyProjection:
        """The projection of this version, among itself and its predecessors; itself if none matches."""
        found: AnyProjection = self
        while found.version > version and found.previous_version is not None:
            found = found.previous_version()
        return found if found.version == version else self

    def check(self) -> None:
        """Validate the declarations of the class.

        Raises:
            ProjectionLoadError: the name or version is invalid, `topics` or `event_types` is not a collection
                of strings, `on_error` has an unknown value, or a method of the fold is asynchronous.
            ImpureProjectionError: it holds a semantic index.
        """
        name = getattr(self, "name", None)
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ProjectionLoadError(
                f"{type(self).__name__}.name is {name!r}, not a name of a projection.",
                hint="Use lower-case letters, digits, - and _, beginning with a letter.",
            )
        for attribute, value in vars(self).items():
            if isinstance(value, Nondeterministic):
                raise ImpureProjectionError(
                    f"{type(self).__name__}.{attribute} is a {type(value).__name__}, which is eventual: no "
                    "deterministic fold may read it.",
                    hint="Look it up before the event is made, and let the event say what was found.",
                )
        if not isinstance(self.version, int) or self.version < 1:
            raise ProjectionLoadError(
                f"{type(self).__name__}.version is {self.version!r}, not 1 or more.",
                hint="Declare version = 1, and count it up where the state is to be another.",
            )
        for attribute in ("topics", "event_types"):
            self._check_texts(attribute, getattr(self, attribute))
        if self.on_error not in ("hold", "stop"):
            raise ProjectionLoadError(
                f"{type(self).__name__}.on_error is {self.on_error!r}, not hold or stop.",
                hint='Declare on_error = "hold", or "stop".',
            )
        if self.spreads() and self.on_error == "hold":
            raise ProjectionLoadError(
                f"{type(self).__name__} has events of several rows, which cannot be held back for one.",
                hint='Declare on_error = "stop".',
            )
        for method in _OF_THE_FOLD:
            self._check_plain(method)
        self._check_before()

    def _check_plain(self, method: str) -> None:
        """Refuse an asynchronous or generator method: its result would be stored as the state."""
        function = getattr(type(self), method)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            what, hint = "is async", f"Write `def {method}`: what has to be awaited, the event has to say."
        elif method != "keys" and inspect.isgeneratorfunction(function):
            what, hint = "yields", "Let it return one value."
        else:
            return
        raise ProjectionLoadError(f"{type(self).__name__}.{method} {what}.", hint=hint)

    def _check_before(self) -> None:
        before = self.previous_version
        if before is None:
            return
        if not (isinstance(before, type) and issubclass(before, BaseProjection)):
            what = f"{before!r}, not the class of a projection"
        elif getattr(before, "name", None) != self.name or before.version >= self.version:
            what = f"{before.__name__}, not an earlier version of {self.name}"
        elif before.keyed() != self.keyed():
            what = f"{before.__name__}, of which either it or this one is a table, not both"
        elif type(self).migrate is BaseProjection.migrate:
            what = f"{before.__name__}, and `migrate` is not declared"
        else:
            return
        raise ProjectionLoadError(
            f"{type(self).__name__}.previous_version is {what}.",
            hint="Let `previous_version` be the class of the version before, of the same name, and declare "
            "`migrate(self, key, state)`; or leave both out.",
        )

    def _check_texts(self, attribute: str, value: object) -> None:
        """Refuse a string where a collection is expected: `("events.*")` lacks its comma."""
        if attribute == "event_types" and value is None:
            return
        is_text = isinstance(value, str | bytes)
        if not is_text and isinstance(value, Collection) and all(isinstance(one, str) for one in value):
            return
        what = "a plain text" if is_text else "no tuple of texts"
        example = f"({value!r},)" if isinstance(value, str) else '("first", "second")'
        raise ProjectionLoadError(
            f"{type(self).__name__}.{attribute} is {what}: {value!r}.",
            hint=f"Declare {attribute} = {example}.",
        )

    @classmethod
    def keyed(cls) -> bool:
        """Whether the state is a table."""
        return cls.key is not BaseProjection.key or cls.spreads()

    @classmethod
    def spreads(cls) -> bool:
        """Whether an event may belong to several rows."""
        return cls.keys is not BaseProjection.keys

    @classmethod
    def merges(cls) -> bool:
        """Whether the states of several partitions can be merged."""
        return cls.merge is not BaseProjection.merge

    def unmerged(self) -> tuple[str, ...]:
        """The names of composed parts without `merge`; empty if not composed."""
        return ()

    def fold(self, events: Iterable[EventEnvelope]) -> TState:
        """The state after all of `events`, in order. With a table, `events` are those of one row."""
        state = self.initial_state()
        with FOLDING:
            for event in events:
                state = _or_initial(self, self.apply(state, event))
        return state


def require_instance(projection: object) -> None:
    """Refuse anything but a projection instance.

    Raises:
        ProjectionLoadError: it is not a projection, or a class instead of an instance; the message says
            which.
    """
    if isinstance(projection, BaseProjection):
        return
    if isinstance(projection, type) and issubclass(projection, BaseProjection):
        name = projection.__name__
        raise ProjectionLoadError(
            f"{name} is the class of a projection, not one.", hint=f"Make one of it: {name}()."
        )
    raise ProjectionLoadError(
        f"{projection!r} is no projection.", hint="Give an instance of a subclass of BaseProjection."
    )


AnyProjection = BaseProjection[Any]


def _or_initial(projection: BaseProjection[TState], state: TState | None) -> TState:
    return projection.initial_state() if state is None else state


async def fold_to_end(
    log: EventLog,
    topic: str,
    projection: BaseProjection[TState],
    state: TState,
    cursor: Cursor,
    *,
    on_refused: Callable[[Record, EventError], None] | None = None,
    check: Callable[[Record], None] | None = None,
) -> tuple[TState, dict[int, int]]:
    """Fold what `topic` holds now after `cursor` into a state in memory; return the new state and cursor.

    Events come in offset order within a partition; the order between partitions is not defined. Repeated
    events are folded again: a state and a cursor do not tell which events were there.

    `on_refused` is called with each record that cannot be decoded, or whose event `apply` refuses with an
    `EventValidationError`; the record is passed over, and the others are folded. `check` is called with each
    record before it is folded, and may refuse it in the same way.

    Raises:
        CorruptRecordError, EventValidationError: the same without `on_refused`; the state is unchanged.
        LogTruncatedError, LogUnavailableError, TopicNotFoundError
    """
    until = await log.end(topic)
    async for batch in log.read_batches(topic, cursor, until=until, types=projection.event_types):
        with FOLDING:
            for record in batch:
                try:
                    if check is not None:
                        check(record)
                    state = _or_initial(projection, projection.apply(state, record.envelope))
                except (CorruptRecordError, EventValidationError) as error:
                    if on_refused is None:
                        raise
                    on_refused(record, error)
    return state, until
