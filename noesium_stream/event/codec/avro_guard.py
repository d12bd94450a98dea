"""Structural check of Avro bytes against their writer schema, before memory is allocated for them.

fastavro trusts its input: it builds a block that announces a billion nulls, allocates a length of 2^62 and
adds up a varint of a megabyte. This check builds nothing. It checks that every length fits into the remaining
bytes, every number is in its shortest form and every union and boolean is in its range. It counts elements
against `MAX_ITEMS`, and names the field with the first mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noesium_stream.errors import EventValidationError
from noesium_stream.event.limits import MAX_AVRO_DEPTH, MAX_ITEMS

_FIXED: Final = {"float": 4, "double": 8}


class Guard:
    """Checks bytes against one writer schema, as parsed by `fastavro.parse_schema`."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.names: dict[str, Any] = {}
        self._collect(schema)

    def check(self, data: bytes, start: int = 0) -> None:
        """Check that `data[start:]` is exactly one value of the schema.

        Raises:
            EventValidationError: it is not; `field` is the path within the schema, or `value` for the whole.
        """
        walk = _Walk(self.names, data, start)
        walk.value(self.schema, "", 0)
        if walk.pos != len(data):
            raise EventValidationError("value", f"{len(data) - walk.pos} bytes follow the end of the event")

    def _collect(self, schema: Any) -> None:
        """Record the named types; in a parsed schema all names are fully qualified."""
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch)
        if not isinstance(schema, dict):
            return
        if "name" in schema:
            self.names[schema["name"]] = schema
        for part in ("type", "items", "values"):
            self._collect(schema.get(part))
        for field in schema.get("fields", ()):
            self._collect(field["type"])


class _Walk:
    def __init__(self, names: dict[str, Any], data: bytes, pos: int) -> None:
        self.names = names
        self.data = data
        self.pos = pos
        self.items = 0
        self.complex: dict[str, Callable[[Any, str, int], None]] = {
            "record": self._record,
            "error": self._record,
            "map": self._map,
            "array": self._array,
            "enum": self._enum,
            "fixed": self._fixed,
        }

    def value(self, schema: Any, path: str, depth: int) -> None:
        if depth > MAX_AVRO_DEPTH:
            raise EventValidationError(path, f"is nested deeper than {MAX_AVRO_DEPTH} levels")
        if isinstance(schema, list):
            index = self.long(path)
            if not 0 <= index < len(schema):
                raise EventValidationError(path, f"there is no branch {index} in a union of {len(schema)}")
            return self.value(schema[index], path, depth + 1)
        if isinstance(schema, str):
            if schema in self.names:
                return self.value(self.names[schema], path, depth + 1)
            return self._primitive(schema, path)
        kind = schema["type"]
        if isinstance(kind, str) and kind in self.complex:
            return self.complex[kind](schema, path, depth)
        return self.value(kind, path, depth + 1)

    def _primitive(self, kind: str, path: str) -> None:
        if kind in ("string", "bytes"):
            self._blob(kind, path)
        elif kind in ("int", "long"):
            number = self.long(path)
            if kind == "int" and not -(2**31) <= number < 2**31:
                raise EventValidationError(path, "the number does not fit in 32 bits")
        elif kind == "boolean":
            if self._take(1, path)[0] > 1:
                raise EventValidationError(path, "the byte is neither true nor false")
        elif kind in _FIXED:
            self._take(_FIXED[kind], path)
        elif kind != "null":
            raise EventValidationError(path, f"{kind} is not an Avro type")

    def _blob(self, kind: str, path: str) -> None:
        length = self.long(path)
        if length < 0:
            raise EventValidationError(path, f"the length {length} is negative")
        blob = self._take(length, path)
        if kind == "string":
            try:
                str(blob, "utf-8")
            except UnicodeDecodeError as error:
                raise EventValidationError(path, f"is not UTF-8: {error.reason}") from None

    def _record(self, schema: Any, path: str, depth: int) -> None:
        for field in schema["fields"]:
            name = field["name"]
            self.value(field["type"], f"{path}.{name}" if path else name, depth + 1)

    def _map(self, schema: Any, path: str, depth: int) -> None:
        keys: set[bytes] = set()
        for _ in self._blocks(path):
            start = self.pos
            self._blob("string", path)
            key = bytes(self.data[start : self.pos])
            if key in keys:
                raise EventValidationError(path, "a key occurs twice")
            keys.add(key)
            self.value(schema["values"], path, depth + 1)

    def _array(self, schema: Any, path: str, depth: int) -> None:
        for _ in self._blocks(path):
            self.value(schema["items"], path, depth + 1)

    def _blocks(self, path: str) -> Any:
        """Yield once for each element that the blocks announce."""
        while count := self.long(path):
            size = None
            if count < 0:
                count, size = -count, self.long(path)
            self.items += count
            if self.items > MAX_ITEMS:
                raise EventValidationError(path, f"announces more than {MAX_ITEMS} elements")
            start = self.pos
            for _ in range(count):
                yield
            if size is not None and self.pos - start != size:
                raise EventValidationError(path, f"a block is not of the {size} bytes that it announces")

    def _enum(self, schema: Any, path: str, _depth: int) -> None:
        index = self.long(path)
        if not 0 <= index < len(schema["symbols"]):
            raise EventValidationError(path, f"there is no symbol {index}")

    def _fixed(self, schema: Any, path: str, _depth: int) -> None:
        self._take(schema["size"], path)

    def long(self, path: str) -> int:
        """A zigzag varint of at most 64 bits in its shortest form."""
        value = shift = 0
        while True:
            if self.pos >= len(self.data):
                raise EventValidationError(path, "the event ends within it")
            byte = self.data[self.pos]
            self.pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise EventValidationError(path, "a number is longer than 64 bits")
        if value >= 2**64 or (shift and not byte):
            raise EventValidationError(path, "a number is not in its shortest form of at most 64 bits")
        return value >> 1 ^ -(value & 1)

    def _take(self, length: int, path: str) -> memoryview:
        end = self.pos + length
        if end > len(self.data):
            left = len(self.data) - self.pos
            raise EventValidationError(path, f"{length} bytes are announced, {left} are left")
        taken = memoryview(self.data)[self.pos : end]
        self.pos = end
        return taken
