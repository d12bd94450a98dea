"""The hash of a graph's state after a superstep: `verify` compares it where no node reads a difference.

SHA-256 over the state's channels, sorted by name. The values of a channel are hashed in their recorded form
(`typed_json`): sets and keys of mappings sorted, whole numbers written as such, as RFC 8785 does, so that the
hash is the same in every process. A list is a stream of its elements, a mapping one of its keys and values.
An element that is neither text nor number enters by its own hash, and a value without a recorded form as a
question mark.

Decision record: an element is hashed once, when it is first seen, and recognised later as the same object.
The state is not copied. This assumes that nobody changes it. In-place changes that a node does not return are
no part of the run's history, and are ignored. Values written by a reducer that might change elements are
hashed again each time, at a cost that grows with their size: any reducer but LangGraph's, those of
`operator`, and functions whose code only joins, slices and compares. So the hash is a function of the
journal, whether a run was executed, walked or folded up to there. Subgraphs have none: their states end in
the delta of the node that runs them. Every durability has the same hashes.
"""

from __future__ import annotations

import builtins
import dis
import operator
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

import orjson
from langgraph.channels.any_value import AnyValue
from langgraph.channels.base import BaseChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.channels.last_value import LastValue, LastValueAfterFinish
from langgraph.channels.topic import Topic
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.graph.message import add_messages

from noesium_stream.event.envelope import MAX_INT, EventEnvelope
from noesium_stream.kernel.state.message_ids import Held, message_keys
from noesium_stream.kernel.state.typed_json import TYPE, encode

Reader = Callable[[list[str]], Mapping[str, Any]]
"""Returns the current values of channels, without those that are empty. LangGraph has one in the
configuration of each task."""

_SORTED: Final = orjson.OPT_SORT_KEYS
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_SCALARS: Final = _PLAIN | {float}
_KEEPING: Final = frozenset({AnyValue, EphemeralValue, LastValue, LastValueAfterFinish, Topic})
_UNORDERED: Final = frozenset({"set", "frozenset", "mapping"})
_COMMAND: Final = "__command__"
_UNKNOWN: Final = b"?"
_CALLS: Final = (add_messages, dict, isinstance, len, list, max, min, set, sorted, tuple)
_HARMLESS: Final = (
    *("RESUME", "LOAD_FAST", "LOAD_CONST", "LOAD_SMALL_INT", "STORE_FAST", "RETURN_", "NOP", "NOT_TAKEN"),
    *("BINARY_OP", "BINARY_SLICE", "BINARY_SUBSCR", "BUILD_", "LIST_EXTEND", "DICT_UPDATE", "COPY", "SWAP"),
    *(
        "POP_TOP",
        "POP_JUMP",
        "JUMP_FORWARD",
        "PRECALL",
        "CALL",
        "PUSH_NULL",
        "KW_NAMES",
        "JUMP_IF",
        "TO_BOOL",
        "IS_OP",
        "COMPARE_OP",
        "CONTAINS_OP",
    ),
)


def state_channels(graph: Any) -> dict[str, bool]:
    """The channels of a compiled graph's state, by name: whether their elements are never changed."""
    messages = message_keys(graph)
    return {
        name: messages.get(name) is Held.ADDED or _keeps_elements(channel)
        for name, channel in sorted(graph.channels.items())
        if isinstance(channel, BaseChannel)
        and not isinstance(channel, UntrackedValue)
        and (name == "__root__" or not name.startswith(("__", "branch:", "join:")))
    }


class StateHash:
    """Hashes the state of one execution of a graph, superstep after superstep.

    Args:
        channels: the result of `state_channels`.
    """

    def __init__(self, channels: Mapping[str, bool]) -> None:
        self._channels = channels
        self._names = list(channels)
        self._parts = {name: _Part() for name in channels}

    def read(self, reader: Reader) -> Mapping[str, Any]:
        """The current state, by channel; its values are not copied."""
        return reader(self._names)

    def take(self, read: Reader, done: Iterable[EventEnvelope]) -> str:
        """The hash of the current state, in hex.

        Args:
            read: reads the channels.
            done: `kernel.node.completed` of all nodes since the last call.
        """
        written = _written(done)
        values = read(self._names)
        stream = sha256()
        for name, keeps in self._channels.items():
            if name in values:
                again = written is None or name in written
                try:
                    piece = self._parts[name].take(values[name], keeps, again)
                except Exception:
                    # The recording itself reports a value that cannot be recorded; a hash never fails a run.
                    self._parts[name], piece = _Part(), _UNKNOWN
                stream.update(b"%b:%b" % (orjson.dumps(name), piece))
        return stream.hexdigest()


class _Part:
    """A value, and the parts of its hash that the next value in its place can reuse."""

    __slots__ = ("_inner", "_piece", "_value")

    def __init__(self) -> None:
        self._value: Any = self  # no value of a state
        self._piece = b""
        self._inner: _List | _Dict | None = None

    def take(self, value: Any, keeps: bool, again: bool) -> bytes:
        """The bytes that represent `value` in a stream.

        Args:
            value: the value.
            keeps: elements have not changed since they were first seen.
            again: it may have changed since the last time, though it is the same object.
        """
        kind = type(value)
        if kind in _SCALARS:
            return _leaf(value) + b","
        if value is self._value and not again:
            return self._piece
        if not keeps:
            self._inner = None
        inner: _List | _Dict | None = None
        if kind is list:
            inner = self._inner if isinstance(self._inner, _List) else _List()
        elif kind is dict and TYPE not in value and all(type(key) is str for key in value):
            inner = self._inner if isinstance(self._inner, _Dict) else _Dict()
        digest = inner.digest(value) if inner is not None else sha256(_leaf(value)).digest()
        self._value, self._piece, self._inner = value, b"#" + digest, inner
        return self._piece


class _List:
    """The elements of a list, and their stream so far: usually the next list begins with the same ones."""

    __slots__ = ("_items", "_known", "_stream")

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._known: dict[int, bytes] = {}
        self._stream = sha256(b"[")

    def digest(self, value: list[Any]) -> bytes:
        before, known = self._items, self._known  # alive until the end: ids of their elements stay theirs
        if len(before) > len(value) or not all(map(operator.is_, before, value)):
            self._items, self._known, self._stream = [], {}, sha256(b"[")
        pieces, new = [], value[len(self._items) :]
        for item in new:
            if type(item) in _SCALARS:
                pieces.append(_leaf(item) + b",")
                continue
            piece = known.get(id(item)) or b"#" + sha256(_leaf(item)).digest()
            self._known[id(item)] = piece
            pieces.append(piece)
        self._items += new
        self._stream.update(b"".join(pieces))
        return self._stream.digest()


class _Dict:
    """The values of a mapping with text keys."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}

    def digest(self, value: dict[str, Any]) -> bytes:
        before, self._parts = self._parts, {}
        stream = sha256(b"{")
        for key in sorted(value):
            item = value[key]
            if type(item) in _SCALARS:
                piece = _leaf(item) + b","
            else:
                part = self._parts[key] = before.get(key) or _Part()
                piece = part.take(item, True, False)
            stream.update(b"%b:%b" % (orjson.dumps(key), piece))
        return stream.digest()


def _leaf(value: Any) -> bytes:
    """The canonical text of a value's recorded form."""
    if type(value) in _PLAIN:
        return orjson.dumps(value)
    recorded = encode(value, "state")
    text = orjson.dumps(recorded, option=_SORTED)
    if b".0" in text or b'"__type__":' in text:
        text = orjson.dumps(_normal(recorded), option=_SORTED)
    return text


def _normal(recorded: Any) -> Any:
    kind = type(recorded)
    if kind is float:
        return int(recorded) if recorded.is_integer() and abs(recorded) <= MAX_INT else recorded
    if kind is list:
        return [_normal(item) for item in recorded]
    if kind is not dict:
        return recorded
    normal = {key: _normal(item) for key, item in recorded.items()}
    if normal.get(TYPE) in _UNORDERED:
        normal["value"].sort(key=lambda item: orjson.dumps(item, option=_SORTED))
    return normal


def _keeps_elements(channel: BaseChannel[Any, Any, Any]) -> bool:
    """Whether a channel never changes the elements that it holds."""
    if not isinstance(channel, BinaryOperatorAggregate):
        return type(channel) in _KEEPING
    function: Any = channel.operator
    if getattr(function, "__module__", None) == "_operator":
        return True
    code = getattr(function, "__code__", None)
    return code is not None and all(_is_harmless(step, function) for step in dis.get_instructions(code))


def _is_harmless(step: dis.Instruction, function: Any) -> bool:
    """Whether an instruction of a reducer changes nothing in place; it may call known harmless functions."""
    if step.opname == "LOAD_GLOBAL":
        called = function.__globals__.get(step.argval, getattr(builtins, step.argval, None))
        return any(called is harmless for harmless in _CALLS)
    in_place = step.opname == "BINARY_OP" and step.argrepr.endswith("=")
    return step.opname.startswith(_HARMLESS) and not in_place


def _written(done: Iterable[EventEnvelope]) -> frozenset[str] | None:
    """The channels that these nodes wrote; None: possibly any."""
    found: set[str] = set()
    for event in done:
        delta = event.payload.get("delta")
        if isinstance(delta, dict) and _COMMAND in delta:
            delta = delta[_COMMAND]["update"]
        if isinstance(delta, dict) and TYPE not in delta:
            found.update(delta)
        elif delta is not None:
            return None
    return frozenset(found)
