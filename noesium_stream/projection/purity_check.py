"""Purity check of a projection (law 6), used by `--check` and by tests.

A `PurityCheck` is the `call` of a `PartitionFold`. It watches what each `key` and `apply` reads besides its
arguments. It calls `apply` three times: twice on fresh copies of the stored state and once on the live one.
The results must be the same bytes; the event and (without `in_place`) the state must be unchanged. `merge`
must leave a state as it is when the other one has seen no event. The check is ten to a hundred times slower
than the plain fold.

Not detected: an order that comes from iterating over a set of strings. It is the same within a process; the
test kit's `check_projection` compares two processes with different hash seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import orjson

from noesium_stream.errors import ImpureProjectionError, NoesiumError, StateNotStoredError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.value import short_path
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.purity.entropy import Kind
from noesium_stream.purity.pure_call import ImpureCallError, PureCall

_INSTEAD: Final = {
    Kind.CLOCK: "Time is the event's: event.timestamp_ms.",
    Kind.CHANCE: "Take ids from the event (event.event_id), and hashes from hashlib.",
    Kind.ENVIRONMENT: "Let whoever appends the event put the setting into it.",
}
_ASK: Final = "Let whoever appends the event put into it what the projection has to know."
_NEW: Final = "Return a new state, or declare `in_place = True` if `apply` changes the one that it is given."
_FROM_ARGUMENTS: Final = (
    "Let `apply` depend on its two arguments alone, and keep nothing in the projection itself."
)
_NEUTRAL: Final = (
    "Each part begins with `initial_state()`: let it be neutral, and let `merge` keep "
    "all that `apply` puts in."
)


class PurityCheck:
    """Calls `key` and `apply` of one projection and raises an error for impurity.

    Args:
        projection: the projection whose methods are called.

    Raises:
        ImpureProjectionError: `initial_state` returns the same mutable object, or different states, each
            time.
    """

    def __init__(self, projection: AnyProjection) -> None:
        self._projection = projection
        self._codec: StateCodec[Any] = StateCodec(projection)
        self._calls: dict[str, PureCall] = {
            "apply": PureCall(projection.apply),
            "key": PureCall(projection.key),
            "keys": PureCall(projection.keys),
            "initial_state": PureCall(projection.initial_state),
            "migrate": PureCall(projection.migrate),
        }
        self._check_initial_state()

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `key`, `keys`, `apply` or `migrate`.

        Raises:
            ImpureProjectionError: the call is not pure; the message names the event, and the field or line.
            Exception: any error of the called method.
        """
        if function == self._projection.apply:
            return self._apply(*args)
        if function == self._projection.migrate:
            return self._migrate(*args)
        return self._key("keys" if function == self._projection.keys else "key", *args)

    def _key(self, method: str, event: Any) -> Any:
        key, again = (self._unchanged_event(method, event) for _ in range(2))
        if key != again:
            raise self._impure(method, event, f"returned {key!r}, and {again!r} when it was called again")
        return key

    def _migrate(self, key: str, state: Any) -> Any:
        again = deepcopy(state)
        try:
            result, other = (self._calls["migrate"](key, given) for given in (state, again))
        except ImpureCallError as error:
            hint = _INSTEAD.get(error.kind, _ASK)
            raise self._impure("migrate", None, f"{error}, for the row {key!r}", hint) from error
        first, second = self._encoded(result), self._encoded(other)
        if first != second:
            what = f"had another result when it was called again: {first_difference(first, second)}"
            raise self._impure("migrate", None, f"{what}, for the row {key!r}")
        return result

    def _apply(self, state: Any, event: Any) -> Any:
        given = self._codec.encode(state)
        first = self._applied(given, event, self._codec.decode(given))
        again = self._applied(given, event, self._codec.decode(given), "when it was called again")
        self._require_same(first, again, event, "when it was called again")
        result = self._unchanged_event("apply", event, state)
        self._require_same(first, self._encoded(result), event, "of the state that had not been stored")
        if first is not None:
            back = self._codec.encode(self._codec.decode(first))
            self._require_same(first, back, event, "when it was read again")
            if self._projection.merges():
                self._check_merge(first, event)
        return result

    def _check_merge(self, data: bytes, event: Any) -> None:
        """Check that merging with an initial state changes nothing; a `merge` that refuses is allowed."""
        try:
            empty = self._codec.encode(self._projection.initial_state())
        except StateNotStoredError:
            return  # it need not be stored before the first event
        for one, other in ((data, empty), (empty, data)):
            try:
                both = self._projection.merge(self._codec.decode(one), self._codec.decode(other))
                found = self._encoded(both)
            except Exception:  # a row of one partition only may refuse to merge
                continue
            if found is None or orjson.loads(found) != orjson.loads(data):
                what = f"changed a state beside `initial_state()`: {first_difference(data, found)}"
                raise self._impure("merge", event, what, _NEUTRAL)

    def _applied(self, given: bytes, event: Any, copy: Any, when: str | None = None) -> bytes | None:
        """The encoded result of `apply`; `copy` is the decoded `given`."""
        try:
            result = self._unchanged_event("apply", event, copy)
        except NoesiumError:
            raise
        except Exception as error:
            if when is None:
                raise
            what = f"failed {when}: {type(error).__name__}: {brief(error, 300)}"
            raise self._impure("apply", event, what, _FROM_ARGUMENTS) from error
        if not self._projection.in_place:
            try:
                after = self._codec.encode(copy)
            except StateNotStoredError as error:
                what = f"changed the state that it was given: {brief(error, 300)}"
                raise self._impure("apply", event, what, _NEW) from error
            if after != given:
                what = f"changed the state that it was given: {first_difference(given, after)}"
                raise self._impure("apply", event, what, _NEW)
        return self._encoded(result)

    def _unchanged_event(self, method: str, event: Any, *args: Any) -> Any:
        before = _content(event)
        try:
            result = self._calls[method](*args, event)
        except ImpureCallError as error:
            hint = _INSTEAD.get(error.kind, _ASK)
            raise self._impure(method, event, str(error), hint) from error
        after = _content(event)
        if after != before:
            what = f"changed the event: {first_difference(before, after, 'event')}"
            raise self._impure(method, event, what, "Copy what is to be changed.")
        return result

    def _encoded(self, state: Any) -> bytes | None:
        return None if state is None else self._codec.encode(state)

    def _require_same(self, first: bytes | None, other: bytes | None, event: Any, when: str) -> None:
        if first != other:
            what = f"had another result {when}: {first_difference(first, other)}"
            raise self._impure("apply", event, what, _FROM_ARGUMENTS)

    def _check_initial_state(self) -> None:
        try:
            one, other = (self._calls["initial_state"]() for _ in range(2))
        except ImpureCallError as error:
            raise self._impure("initial_state", None, str(error), _INSTEAD.get(error.kind, _ASK)) from error
        if one is other and isinstance(one, list | dict | set):
            what = "returned the same object when it was called again"
            raise self._impure("initial_state", None, what, "Return a new state at each call.")
        try:
            data, again = self._encoded(one), self._encoded(other)
        except StateNotStoredError:
            return  # it need not be stored before the first event
        if data != again:
            what = f"had another result when it was called again: {first_difference(data, again)}"
            raise self._impure("initial_state", None, what)

    def _impure(
        self, method: str, event: Any, what: str, hint: str = _FROM_ARGUMENTS
    ) -> ImpureProjectionError:
        on = "" if event is None else f" on the event {event.event_type} {event.event_id}"
        return ImpureProjectionError(
            f"`{method}` of the projection {self._projection.name} {what}{on}.", hint=hint
        )


def _content(event: Any) -> bytes:
    """The mutable content of an event."""
    if not isinstance(event, EventEnvelope):
        return b"null"
    return orjson.dumps(
        {"payload": event.payload, "metadata": event.metadata, "extensions": event.extensions}
    )


def first_difference(one: bytes | None, other: bytes | None, path: str = "state") -> str:
    """The first difference of two JSON texts, with both values; `path` is the name of the root."""
    if one is None or other is None:
        return f"{path}: {_shown(one)}, then {_shown(other)}"
    return _difference(orjson.loads(one), orjson.loads(other), path) or f"{path}: other bytes"


def _difference(one: Any, other: Any, path: str) -> str | None:
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            odd = sorted(one.keys() ^ other.keys())
            if odd:
                name = odd[0]
                missing = "missing"
                return f"{path}.{name}: {one.get(name, missing)!r}, then {other.get(name, missing)!r}"
            return f"{path}: the order of {', '.join(one)}, then of {', '.join(other)}"
        pairs = [(one[name], other[name], name) for name in one]
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{path}: {len(one)} items, then {len(other)}"
        pairs = [
            (item, others, str(index)) for index, (item, others) in enumerate(zip(one, other, strict=True))
        ]
    else:
        return None if one == other and type(one) is type(other) else f"{path}: {one!r}, then {other!r}"
    path = short_path(path)
    found = (_difference(item, others, f"{path}.{name}") for item, others, name in pairs)
    return next(filter(None, found), None)


def _shown(data: bytes | None) -> str:
    return "no row" if data is None else data[:80].decode(errors="replace")
