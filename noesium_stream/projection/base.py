"""Projections (RFC-0004 §4, RFC-1001 §8.1): local state as a pure function of the events before it."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from noesium_stream.errors import ImpureProjectionError, ProjectionLoadError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import Cursor, EventLog
from noesium_stream.projection.folding import FOLDING, Nondeterministic

TState = TypeVar("TState")

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

_OF_THE_FOLD = ("initial_state", "apply", "key", "keys", "merge", "migrate")
JOURNALS = "agent.*.journal*"
FACTS = "events.*"


class BaseProjection(ABC, Generic[TState]):
    """P : (State, Event) → State. No clock, chance, network, model or unordered iteration (law 6).

    With `key` the state is a table: `apply` is given one row's state, or `initial_state()` for a key that
    has none, and returns the row's new state; None removes the row. Without `key` there is one state per
    partition. The type argument says how a state is stored: anything that pydantic can validate (models,
    dataclasses, TypedDicts, ints, lists, …), else plain JSON values.

    Attributes:
        name: of the projection; lower-case letters, digits, `-` and `_`.
        version: another one is another projection, built beside this one.
        events: domain events of a program's own that it reads; the standard ones are known.
        event_types: what it needs (exact, or a prefix ending in `.`); None takes everything. Others are
            skipped by their headers, undecoded.
        topics: patterns of topics without the namespace; the default is every journal and all facts.
        reads: major versions of event types that it is written for (`{"invoice.created": "1"}`): where the
            newest known one is another, it does not start. Types that are not named come in their newest.
        decodes: False gives `key` and `apply` the record's place and headers (`EventHeaders`), at several
            times the speed; what is wrong inside of an event that nobody asks for is then not noticed.
        copies: whether a journal's copies of what a run received from other runs are folded as well. Then
            each run's journal is whole, and what one run sent another is seen in both.
        in_place: whether `apply` changes the state that it is given, and returns it.
        on_error: what an event does that `apply` cannot take: `hold` its key's later events back as dead
            letters, or `stop` the projection.
        before: the class of the version before this one, where a migration event may let this one take over
            its state (`migration.py`); keep it as it is. Without such an event all is folded by this one.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    events: ClassVar[tuple[type[DomainEvent], ...]] = ()
    event_types: ClassVar[tuple[str, ...] | None] = None
    topics: ClassVar[tuple[str, ...]] = (JOURNALS, FACTS)
    reads: ClassVar[Mapping[str, str]] = {}
    decodes: ClassVar[bool] = True
    copies: ClassVar[bool] = False
    in_place: ClassVar[bool] = False
    on_error: ClassVar[str] = "hold"
    before: ClassVar[type[BaseProjection[Any]] | None] = None

    @abstractmethod
    def initial_state(self) -> TState:
        """The state before the first event; a new one at each call."""

    @abstractmethod
    def apply(self, state: TState, event: EventEnvelope) -> TState | None:
        """The state after one more event."""

    def key(self, event: EventEnvelope) -> str | None:
        """The row that this event belongs to; None passes the event over.

        Where it is not the event's partition key, one row may have parts in several partitions: declare
        `merge`.
        """
        return ""

    def keys(self, event: EventEnvelope) -> Sequence[str]:
        """The rows that this event belongs to, each once; declare it instead of `key` where it has several.

        An event is folded into all of its rows or into none, so `on_error` has to be `stop`.
        """
        key = self.key(event)
        return () if key is None else (key,)

    def merge(self, a: TState, b: TState) -> TState:
        """One state from those of two partitions; associative and commutative.

        Raises:
            NotImplementedError: it is not declared.
        """
        raise NotImplementedError

    def migrate(self, key: str, state: Any) -> TState | None:
        """A row of the version `before`, as this version's; None leaves it out. Pure, as `apply`.

        Raises:
            NotImplementedError: it is not declared.
        """
        raise NotImplementedError

    def of_version(self, version: int) -> AnyProjection:
        """The one of this version, of itself and those that were before it; itself where there is none."""
        found: AnyProjection = self
        while found.version > version and found.before is not None:
            found = found.before()
        return found if found.version == version else self

    def check(self) -> None:
        """Judge what the class declares.

        Raises:
            ProjectionLoadError: it has no usable name or version, `topics` or `event_types` is no collection
                of texts, `on_error` is none that it can have, or a method of the fold has to be awaited.
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
        """A fold calls and goes on: it awaits nothing, and would store the generator."""
        function = getattr(type(self), method)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            what, hint = "is async", f"Write `def {method}`: what has to be awaited, the event has to say."
        elif method != "keys" and inspect.isgeneratorfunction(function):
            what, hint = "yields", "Let it return one value."
        else:
            return
        raise ProjectionLoadError(f"{type(self).__name__}.{method} {what}.", hint=hint)

    def _check_before(self) -> None:
        before = self.before
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
            f"{type(self).__name__}.before is {what}.",
            hint="Let `before` be the class of the version before, of the same name, and declare "
            "`migrate(self, key, state)`; or leave both out.",
        )

    def _check_texts(self, attribute: str, value: object) -> None:
        """A text is a collection of its letters: `("events.*")` has lost its comma."""
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
        """Whether the states of partitions can be made one."""
        return cls.merge is not BaseProjection.merge

    def unmerged(self) -> tuple[str, ...]:
        """Of what is composed, the names of the parts that have no `merge`; else none."""
        return ()

    def fold(self, events: Iterable[EventEnvelope]) -> TState:
        """The state after all of `events`, in their order; of a table, of one row's events."""
        state = self.initial_state()
        with FOLDING:
            for event in events:
                state = _or_initial(self, self.apply(state, event))
        return state


def require_instance(projection: object) -> None:
    """Refuse what is no projection, or the class of one.

    Raises:
        ProjectionLoadError: it says which.
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


Projection = BaseProjection
AnyProjection = BaseProjection[Any]


def _or_initial(projection: BaseProjection[TState], state: TState | None) -> TState:
    return projection.initial_state() if state is None else state


async def catch_up(
    log: EventLog, topic: str, projection: BaseProjection[TState], state: TState, cursor: Cursor
) -> tuple[TState, dict[int, int]]:
    """Fold what `topic` holds beyond `cursor` now into a state in memory; return the new state and cursor.

    Events come in offset order within a partition; the order between partitions is not defined.

    Raises:
        CorruptRecordError: a record cannot be decoded; names its position. The state is unchanged.
        LogTruncatedError, LogUnavailableError, TopicNotFoundError
    """
    until = await log.end(topic)
    async for batch in log.read_batches(topic, cursor, until=until, types=projection.event_types):
        with FOLDING:
            for record in batch:
                state = _or_initial(projection, projection.apply(state, record.envelope))
    return state, until
