"""Values of a checkpoint as JSON: plain if JSON holds them exactly, else LangGraph's typed bytes.

Only values that come back with the same type are plain: dicts with text keys, lists, texts, booleans, finite
numbers, null. Anything else is `{"$typed": [kind, base64]}` of the serializer, and so is a dict that happens
to have that key.

Decision record: with a custom serializer (encryption, for example) a plain body would put on the log what
that serializer is there to hide, so the whole body goes through it. Its values are then written by the inner
serializer (`EncryptedSerializer.serde`): the same value has to give the same bytes, or nothing would ever
equal the parent's value.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Final

import orjson
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from noesium_stream.errors import CheckpointError, StateError

Tree = Any
"""JSON values; never changed once created, so that trees share their parts."""

TYPED: Final = "$typed"
_MAX_DEPTH: Final = 100
_MAX_INT: Final = 2**53
"""Largest integer that every JSON implementation holds (RFC 8785); larger ones are typed."""


class Values:
    """Turns values into trees and back with one serializer."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self._inner = serde.serde if isinstance(serde, EncryptedSerializer) else serde
        self._plain = isinstance(serde, JsonPlusSerializer)

    def encode(self, value: Any, what: str) -> Tree:
        """A tree of its own, which later changes of `value` do not reach.

        Raises:
            StateError: neither JSON nor the serializer can write it; the message names it by `what`.
        """
        try:
            return self._encode(value, 0)
        except (TypeError, ValueError, RecursionError, AttributeError) as error:
            raise StateError(
                f"{what} cannot be saved: {type(error).__name__}: {error}",
                hint="Keep it out of the graph's state, or give the checkpointer a serializer that knows it.",
            ) from error

    def decode(self, tree: Tree) -> Any:
        """The value of a tree; a new object each time.

        Raises:
            CheckpointError: the serializer cannot read it.
        """
        kind = type(tree)
        if kind is dict:
            if TYPED in tree:
                return self._load(self._inner, tree)
            return {key: self.decode(item) for key, item in tree.items()}
        if kind is list:
            return [self.decode(item) for item in tree]
        return tree

    def seal(self, body: Tree) -> Tree:
        """The body of a record in the form for the log."""
        return body if self._plain else _typed(self._serde, body)

    def unseal(self, body: Tree) -> Tree:
        """The body from the result of `seal`.

        Raises:
            CheckpointError: the serializer cannot read it.
        """
        sealed = type(body) is dict and TYPED in body
        return self._load(self._serde, body) if sealed else body

    def _encode(self, value: Any, depth: int) -> Tree:
        kind = type(value)
        if kind is str:
            return value if value.isascii() or _writable(value) else _typed(self._inner, value)
        if value is None or kind is bool:
            return value
        if kind is int and -_MAX_INT < value < _MAX_INT:
            return value
        if kind is float and math.isfinite(value):
            return value
        if kind is list and depth < _MAX_DEPTH:
            return [self._encode(item, depth + 1) for item in value]
        if kind is dict and depth < _MAX_DEPTH and TYPED not in value and all(map(_is_key, value)):
            return {key: self._encode(item, depth + 1) for key, item in value.items()}
        return _typed(self._inner, value)

    def _load(self, serde: SerializerProtocol, tree: Tree) -> Any:
        kind, text = tree[TYPED]
        try:
            return serde.loads_typed((kind, base64.b64decode(text)))
        except Exception as error:
            raise CheckpointError(
                f"A value of kind {kind} cannot be read: {type(error).__name__}: {error}",
                hint="Open the checkpointer with the serializer (and key) that it was written with.",
            ) from error


def size_of(tree: Tree) -> int:
    """Size of its JSON text in bytes."""
    return len(orjson.dumps(tree))


def same(one: Tree, other: Tree) -> bool:
    """Whether two trees have the same text: 1, 1.0 and true are equal in Python and differ here."""
    return one is other or orjson.dumps(one) == orjson.dumps(other)


def _typed(serde: SerializerProtocol, value: Any) -> Tree:
    kind, data = serde.dumps_typed(value)
    return {TYPED: [kind, base64.b64encode(data).decode()]}


def _is_key(key: Any) -> bool:
    return type(key) is str and (key.isascii() or _writable(key))


def _writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
