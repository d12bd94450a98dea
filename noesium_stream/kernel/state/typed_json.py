"""Python values as JSON and back again, so that a graph's state keeps its types (RFC-0003 §8).

JSON types represent themselves. Anything else is an object with the one key `__type__` and one `value`:

    datetime, date, time, timedelta, UUID, Decimal, bytes, set, frozenset, tuple     by these names
    mappings whose keys are not all texts                                              `mapping`, pairs
    pydantic models, dataclasses, enums, named tuples                                  `module:Class`

A class is looked up by its name only in modules that are loaded here, and built only if the schemas of the
graph at work (`building`) or `kernel_type` declare it: reading a journal imports nothing, and creates nothing
that the graph's author has not named.

Values that are too large for a record of the log are refused (`check_size`) before anything is staged.
"""

from __future__ import annotations

import base64
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

import orjson
from langchain_core.messages import BaseMessage
from langgraph.types import Overwrite
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from noesium_stream.errors import RecordTooLargeError, StateError
from noesium_stream.event.envelope import MAX_INT
from noesium_stream.event.payload.value import short_path, text, too_deep
from noesium_stream.log.prepare import MAX_RECORD_BYTES

TYPE: Final = "__type__"
C = TypeVar("C", bound=type[Any])
Builds = Callable[[type[Any]], bool]
"""Whether a value of this class may be recorded, and built from a record."""

_MAX_DEPTH: Final = 64
_PLAIN: Final = frozenset({str, bool, type(None)})
MAX_VALUE_BYTES: Final = MAX_RECORD_BYTES
"""Largest size of a value as JSON text; a record has room for the rest of its event besides."""

ELSEWHERE: Final = (
    "Store it elsewhere (a file, an object store) and keep its address and its hash in the state."
)

_DECLARE: Final = (
    "Name the class where the state is declared (`plan: Plan`, `items: list[Item]`), or declare it with "
    "@kernel_type; a base of it will do."
)
_ALWAYS: Final[set[type[Any]]] = {BaseMessage, Overwrite}
"""Classes that every graph may build, with those derived from them: LangGraph's own and the declared ones."""

_BUILDS: ContextVar[Builds | None] = ContextVar("noesium_builds", default=None)


def kernel_type(cls: C) -> C:
    """Declare a class whose values may be in any graph's state: a model, dataclass, enum or named tuple.

    Needed only where the state does not name it, as in `data: dict[str, Any]`: what a journal holds is built
    from declared classes alone. Those derived from it are declared as well. For a class of a library:
    `kernel_type(Document)`.
    """
    _ALWAYS.add(cls)
    return cls


class building:
    """Build values of the classes of one graph meanwhile, and record no others (`Reach.builds`)."""

    __slots__ = ("_builds", "_token")

    def __init__(self, builds: Builds) -> None:
        self._builds = builds

    def __enter__(self) -> None:
        """Let these classes be built."""
        self._token: Token[Builds | None] = _BUILDS.set(self._builds)

    def __exit__(self, *raised: object) -> None:
        """Go back to those of before."""
        _BUILDS.reset(self._token)


def encode(value: Any, path: str, depth: int = 0) -> Any:
    """`value` as JSON types, a deep copy.

    Raises:
        StateError: a part of it cannot be recorded; the message names its path.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value if kind is not str or value.isascii() else text(value, path)
    if depth > _MAX_DEPTH:
        raise too_deep(path, _MAX_DEPTH)
    if kind is int:
        if abs(value) > MAX_INT:
            raise StateError(f"{path} is an integer beyond 2^53-1.", hint="Keep it as text.")
        return value
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise StateError(f"{path} is {value}, which JSON does not have.")
        return value
    if kind is dict:
        return _mapping(value, path, depth)
    if kind is list:
        return _sequence(value, path, depth)
    named = _ENCODERS.get(kind)
    if named is not None:
        name, to_value = named
        return {TYPE: name, "value": to_value(value, path, depth + 1)}
    return _object(value, path, depth)


def decode(recorded: Any) -> Any:
    """The value behind an encoded one, equal and of the same types.

    Raises:
        StateError: the value is of a class that is not loaded here, or that nothing declares.
    """
    if type(recorded) is list:
        return [decode(item) for item in recorded]
    if type(recorded) is not dict:
        return recorded
    name = recorded.get(TYPE)
    if name is None:
        return {key: decode(item) for key, item in recorded.items()}
    decoder = _DECODERS.get(name)
    return decoder(recorded["value"]) if decoder is not None else _rebuild(name, recorded["value"])


def readable(value: Any, path: str = "result") -> Any:
    """`value` as JSON types without its Python types: for outside readers, such as those of a run's result.

    Dates and durations are ISO 8601 texts; decimals and UUIDs texts, bytes base64, sets sorted lists, objects
    their fields; keys are texts.

    Raises:
        StateError: a part of it cannot be recorded; the message names its path.
    """
    return _plain(encode(value, path))


def _plain(recorded: Any) -> Any:
    if type(recorded) is list:
        return [_plain(item) for item in recorded]
    if type(recorded) is not dict:
        return recorded
    if recorded.keys() != {TYPE, "value"}:
        return {key: _plain(item) for key, item in recorded.items()}
    name, value = recorded[TYPE], recorded["value"]
    if name == "timedelta":
        return to_jsonable_python(timedelta(*value))
    if name == "mapping":
        return {_key(_plain(key)): _plain(item) for key, item in value}
    return _plain(value)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _mapping(value: Mapping[Any, Any], path: str, depth: int) -> Any:
    path = short_path(path)
    if TYPE in value or not all(type(key) is str for key in value):
        return {TYPE: "mapping", "value": _items(list(value.items()), path, depth)}
    return {
        (key if key.isascii() else text(key, path)): encode(item, f"{path}.{key[:80]}", depth + 1)
        for key, item in value.items()
    }


def _items(value: Any, path: str, depth: int) -> list[Any]:
    return [encode(list(item) if type(item) is tuple else item, path, depth + 1) for item in value]


def _sequence(value: Any, path: str, depth: int) -> list[Any]:
    path = short_path(path)
    return [encode(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]


def _unordered(value: Any, path: str, depth: int) -> list[Any]:
    # Sorted by their text: the order of a set differs between processes.
    return sorted(
        _sequence(value, path, depth), key=lambda item: orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
    )


def _text(of: Callable[[Any], Any]) -> Callable[[Any, str, int], Any]:
    return lambda value, path, depth: of(value)


_ENCODERS: Final[dict[type, tuple[str, Callable[[Any, str, int], Any]]]] = {
    tuple: ("tuple", _sequence),
    set: ("set", _unordered),
    frozenset: ("frozenset", _unordered),
    datetime: ("datetime", _text(datetime.isoformat)),
    date: ("date", _text(date.isoformat)),
    time: ("time", _text(time.isoformat)),
    timedelta: ("timedelta", _text(lambda value: [value.days, value.seconds, value.microseconds])),
    UUID: ("UUID", _text(str)),
    Decimal: ("Decimal", _text(str)),
    bytes: ("bytes", _text(lambda value: base64.b64encode(value).decode())),
}

_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "tuple": lambda value: tuple(decode(value)),
    "set": lambda value: set(decode(value)),
    "frozenset": lambda value: frozenset(decode(value)),
    "mapping": lambda value: {key: item for key, item in decode(value)},
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda value: timedelta(*value),
    "UUID": UUID,
    "Decimal": Decimal,
    "bytes": base64.b64decode,
}


def _object(value: Any, path: str, depth: int) -> Any:
    cls = type(value)
    if isinstance(value, BaseModel):
        body: Any = _of_model(value, path)
    elif dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        body = {f.name: encode(getattr(value, f.name), f"{path}.{f.name}", depth + 1) for f in fields}
    elif isinstance(value, Enum):
        body = encode(value.value, path, depth + 1)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        body = _sequence(value, path, depth)
    elif isinstance(value, Mapping):
        return _mapping(value, path, depth)
    elif isinstance(value, str | int | float | list):
        plain: Any = next(base for base in (str, int, float, list) if isinstance(value, base))
        return encode(plain(value), path, depth)
    else:
        raise StateError(
            f"{path} is of type {cls.__name__}, which cannot be recorded.",
            hint="State is recorded as JSON: use JSON types, dates, sets, tuples, dataclasses, enums or "
            "pydantic models; keep files, connections and arrays elsewhere, with a reference in the state.",
        )
    if "<locals>" in cls.__qualname__:
        raise StateError(
            f"{path} is of the class {cls.__name__}, which is defined in a function.",
            hint="Another process has to find the class again: define it at the top of its module.",
        )
    builds = _BUILDS.get()
    if builds is not None and not (builds(cls) or _is_always(cls)):
        raise StateError(
            f"{path} is a {cls.__name__}, which the graph's state does not declare.", hint=_DECLARE
        )
    return {TYPE: f"{cls.__module__}:{cls.__qualname__}", "value": body}


def _of_model(value: BaseModel, path: str) -> Any:
    try:
        if _holds_sets(value):
            dumped = value.model_dump(by_alias=True, round_trip=True)
            return _sorted_sets(dumped, value.model_dump(mode="json", by_alias=True, round_trip=True))
        return orjson.loads(value.model_dump_json(by_alias=True, round_trip=True))
    except PydanticSerializationError as error:
        raise StateError(
            f"{path} is a {type(value).__name__}, which pydantic cannot write as JSON: {error}.",
            hint="Its fields have to have a JSON form, or a serializer of their own.",
        ) from error


def _holds_sets(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN or kind is int or kind is float:
        return False
    if isinstance(value, BaseModel):
        return any(map(_holds_sets, value.__dict__.values()))
    if isinstance(value, Mapping):
        return any(map(_holds_sets, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_sets, value))
    return isinstance(value, set | frozenset)


def _sorted_sets(dumped: Any, written: Any) -> Any:
    """`written` (JSON types) with sorted elements where `dumped` has sets, as `_unordered` does."""
    if isinstance(dumped, Mapping) and isinstance(written, dict) and len(dumped) == len(written):
        pairs = zip(dumped.values(), written.items(), strict=True)
        return {key: _sorted_sets(item, text) for item, (key, text) in pairs}
    if isinstance(written, list) and isinstance(dumped, list | tuple) and len(dumped) == len(written):
        return [_sorted_sets(item, text) for item, text in zip(dumped, written, strict=True)]
    if isinstance(dumped, set | frozenset) and isinstance(written, list):
        return sorted(written, key=lambda item: orjson.dumps(item, option=orjson.OPT_SORT_KEYS))
    return written


def _rebuild(name: str, body: Any) -> Any:
    cls = _loaded(name)
    if issubclass(cls, BaseModel):
        return cls.model_validate_json(orjson.dumps(body))
    if dataclasses.is_dataclass(cls):
        return _rebuild_dataclass(cls, decode(body))
    if issubclass(cls, Enum):
        return cls(decode(body))
    return cls(*decode(body))  # a named tuple


def _rebuild_dataclass(cls: type[Any], values: dict[str, Any]) -> Any:
    settable = {field.name for field in dataclasses.fields(cls) if field.init}
    made = cls(**{name: value for name, value in values.items() if name in settable})
    for name, value in values.items():
        if name not in settable:
            object.__setattr__(made, name, value)
    return made


def _loaded(name: str) -> type[Any]:
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):  # not `getattr`: a module's `__getattr__` may import what the name says
        found = getattr(found, "__dict__", {}).get(part)
    if not isinstance(found, type) or not (
        issubclass(found, BaseModel | Enum | tuple) or dataclasses.is_dataclass(found)
    ):
        raise StateError(
            f"the journal holds a value of the class {name[:200]!r}, which is not loaded here.",
            hint="Import the module that defines it together with the graph.",
        )
    builds = _BUILDS.get()
    if _is_always(found) or (builds is not None and builds(found)):
        return found
    raise StateError(
        f"the journal holds a value of the class {name[:200]!r}, which the graph's state does not declare: "
        "it is not built.",
        hint=_DECLARE,
    )


def _is_always(cls: type[Any]) -> bool:
    return not _ALWAYS.isdisjoint(cls.__mro__)


class said_of:
    """Prefix the message of a `StateError` with `who`; a class, a third of the cost of a generator."""

    __slots__ = ("_who",)

    def __init__(self, who: str) -> None:
        self._who = who

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Replace a `StateError` by one with the prefix."""
        if isinstance(error, StateError):
            raise StateError(f"{self._who}: {error.message}", hint=error.hint) from error


def check_size(recorded: Any, path: str, who: str) -> None:
    """Refuse a value that is too large for a record; `recorded` has a JSON form, `who` made it.

    Raises:
        RecordTooLargeError: names the size, the limit, and the path of the part that is too large.
        StateError: it has no JSON text after all.
    """
    size = _size(recorded, path)
    if size <= MAX_VALUE_BYTES:
        return
    path, at_fault = _largest(recorded, path, size)
    raise RecordTooLargeError(
        f"{who}: {path} has {at_fault:,} bytes as JSON, and a step records at most {MAX_VALUE_BYTES:,}.",
        hint=ELSEWHERE,
    )


def _size(recorded: Any, path: str) -> int:
    try:
        return len(orjson.dumps(recorded))
    except TypeError as error:
        raise StateError(f"{path} cannot be written as JSON: {error}.") from error


def _largest(recorded: Any, path: str, size: int) -> tuple[str, int]:
    """The innermost part that is too large by itself."""
    for inner_path, inner in _parts(recorded, path):
        inner_size = _size(inner, inner_path)
        if inner_size > MAX_VALUE_BYTES:
            return _largest(inner, inner_path, inner_size)
    return path, size


def _parts(recorded: Any, path: str) -> Iterator[tuple[str, Any]]:
    path = short_path(path)
    if isinstance(recorded, dict):
        yield from ((f"{path}.{key[:80]}", item) for key, item in recorded.items())
    elif isinstance(recorded, list):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(recorded))
