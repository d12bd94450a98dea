"""Changes of a capability's schemas that break its callers (RFC-0005): a pure comparison.

What callers sent to the old version, the new one has to accept: the new input schema has to allow all that
the old one allowed. What the new version answers, callers of the old one have to understand: the old output
schema has to allow all that the new one allows. So both are one question: does one schema allow everything
that another one allows? It is answered keyword by keyword, for JSON Schema 2020-12.

A new optional field is allowed in both, though a schema that is open to any field would allow it with any
value: that is how schemas grow. What cannot be compared is said to be so (`comparable`), and counts as a
break: equal schemas are never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from noesium_stream.event.envelope_fields import short
from noesium_stream.event.payload.schema import meaning, resolved
from noesium_stream.event.standard import Capability

_DEPTH: Final = 40
_STEPS: Final = 20_000
_REMARKS: Final = frozenset({"$defs", "default", "deprecated", "readOnly", "writeOnly"})
_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_ALL: Final = frozenset(_TYPES) - {"integer"}
_OF_NUMBERS: Final = frozenset({"integer", "number"})
_LOWER: Final = {
    "minimum": _OF_NUMBERS,
    "exclusiveMinimum": _OF_NUMBERS,
    "minLength": frozenset({"string"}),
    "minItems": frozenset({"array"}),
    "minProperties": frozenset({"object"}),
}
_UPPER: Final = {
    "maximum": _OF_NUMBERS,
    "exclusiveMaximum": _OF_NUMBERS,
    "maxLength": frozenset({"string"}),
    "maxItems": frozenset({"array"}),
    "maxProperties": frozenset({"object"}),
}
_EQUAL: Final = {
    "pattern": frozenset({"string"}),
    "format": frozenset({"string"}),
    "contentEncoding": frozenset({"string"}),
    "contentMediaType": frozenset({"string"}),
    "multipleOf": _OF_NUMBERS,
    "uniqueItems": frozenset({"array"}),
}
"""Keywords that narrow; another value than before may narrow or not."""

_COUPLED: Final = (
    "not", "if", "then", "else", "oneOf", "dependentSchemas", "dependentRequired", "patternProperties",
    "propertyNames", "contains", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems",
    "$dynamicRef",
)  # fmt: skip

Schema = dict[str, Any]


class Break(NamedTuple):
    """One change that breaks callers.

    Attributes:
        path: the field: `input.question`, `output.passages[].text`.
        reason: what has become of it.
        comparable: whether it was compared; if not, it may be harmless.
    """

    path: str
    reason: str
    comparable: bool = True

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


def breaks(old: Capability, new: Capability) -> list[Break]:
    """The changes from one version of a capability to the next that break callers, by field."""
    return [
        *schema_breaks(old.input_schema, new.input_schema, "input"),
        *schema_breaks(old.output_schema, new.output_schema, "output"),
    ]


def schema_breaks(old: Schema, new: Schema, side: str) -> list[Break]:
    """The changes of one schema that break callers; `side` is `input` or `output`, and begins each path."""
    before, after = meaning(old), meaning(new)
    if before == after:
        return []
    found = (_Input(before, after) if side == "input" else _Output(after, before)).compare(side)
    return list(dict.fromkeys(found))


class _Comparison:
    """Whether `wide` allows all that `narrow` allows; says where not, in the words of one direction."""

    is_input: bool

    def __init__(self, narrow: Any, wide: Any) -> None:
        self._roots = narrow, wide
        self._pairs = set[tuple[int, int]]()
        self._steps = 0
        self._same_defs = _defs(narrow) == _defs(wide)

    def compare(self, path: str) -> Iterator[Break]:
        """What `wide` does not allow."""
        yield from self._of(*self._roots, path, 0)

    def _of(self, narrow: Any, wide: Any, path: str, depth: int) -> Iterator[Break]:
        narrow, wide = _plain(narrow, self._roots[0]), _plain(wide, self._roots[1])
        pair = id(narrow), id(wide)
        if pair in self._pairs or narrow is None or wide == {}:
            return  # a schema within itself; nothing is allowed there; everything is
        if self._is_same(narrow, wide):
            return
        self._steps += 1
        if depth > _DEPTH or self._steps > _STEPS:
            yield _incomparable(path, "it is too deep or too large")
        elif wide is None:
            yield Break(path, self._word("is no longer accepted", "may have a value now"))
        else:
            self._pairs.add(pair)
            yield from self._parts(narrow, wide, path, depth + 1)
            self._pairs.discard(pair)

    def _parts(self, narrow: Schema, wide: Schema, path: str, depth: int) -> Iterator[Break]:
        """Take apart what is a choice or a sum of schemas; compare the rest."""
        for keyword in ("anyOf", "oneOf"):
            choices, others = narrow.get(keyword), wide.get(keyword)
            if not isinstance(choices, list) or self._is_same(choices, others):
                continue
            if keyword == "oneOf" and _is_discriminated(narrow, wide):
                for one, other in zip(choices, wide["oneOf"], strict=True):
                    yield from self._of(one, other, path, depth)
                narrow, wide = _without(narrow, "oneOf"), _without(wide, "oneOf")
                continue
            for one in choices:
                yield from self._of(_merged(narrow, keyword, one), wide, path, depth)
            return
        if isinstance(wide.get("anyOf"), list) and not self._is_same(narrow.get("anyOf"), wide["anyOf"]):
            yield from self._some(narrow, [_merged(wide, "anyOf", one) for one in wide["anyOf"]], path, depth)
            return
        yield from self._sum(narrow, wide, path, depth)

    def _sum(self, narrow: Schema, wide: Schema, path: str, depth: int) -> Iterator[Break]:
        if isinstance(wide.get("allOf"), list) and not self._is_same(narrow.get("allOf"), wide["allOf"]):
            for one in wide["allOf"]:
                yield from self._of(narrow, one, path, depth)
            wide = _without(wide, "allOf")
        if isinstance(narrow.get("allOf"), list) and len(narrow["allOf"]) == 1:
            narrow = _merged(narrow, "allOf", narrow["allOf"][0])
        yield from self._keywords(narrow, wide, path, depth)

    def _some(self, narrow: Schema, choices: list[Any], path: str, depth: int) -> Iterator[Break]:
        """Each type that `narrow` allows has to be allowed by one of the choices."""
        for one in _by_type(narrow):
            found = [list(self._of(one, choice, path, depth)) for choice in choices]
            if all(found):
                same = [
                    reasons
                    for reasons, choice in zip(found, choices, strict=True)
                    if _types(one) & _types(_plain(choice, self._roots[1]) or {"enum": []})
                ]
                yield from same[0] if len(same) == 1 else [self._of_types(path, _types(one))]

    def _keywords(self, narrow: Schema, wide: Schema, path: str, depth: int) -> Iterator[Break]:
        kinds, allowed = _types(narrow), _types(wide)
        lost = {
            kind for kind in kinds if kind not in allowed and not (kind == "integer" and "number" in allowed)
        }
        if lost:
            yield self._of_types(path, lost)
            return
        yield from self._values(narrow, wide, path)
        for keyword in _COUPLED:
            if keyword in wide and not self._is_same(narrow.get(keyword), wide[keyword]):
                yield _incomparable(path, f"{keyword} differs")
        yield from self._bounds(narrow, wide, path, kinds)
        if "object" in kinds:
            yield from self._fields(narrow, wide, path, depth)
        if "array" in kinds:
            yield from self._items(narrow, wide, path, depth)

    def _values(self, narrow: Schema, wide: Schema, path: str) -> Iterator[Break]:
        allowed, given = _listed(wide), _listed(narrow)
        if allowed is None:
            return
        if given is None:
            what = ", ".join(short(value) for value in allowed[:5])
            yield Break(path, self._word(f"takes only {what} now", f"may be something else than {what} now"))
            return
        for value in given:
            if not any(_is_same(value, one) for one in allowed):
                yield Break(path, self._word(f"no longer takes {short(value)}", f"may be {short(value)} now"))

    def _bounds(self, narrow: Schema, wide: Schema, path: str, kinds: frozenset[str]) -> Iterator[Break]:
        bounds: list[tuple[dict[str, frozenset[str]], Callable[[Any, Any], bool]]] = [
            (_LOWER, lambda given, bound: given >= bound),
            (_UPPER, lambda given, bound: given <= bound),
            (_EQUAL, lambda given, bound: given == bound),
        ]
        for keywords, suffices in bounds:
            for keyword, concerned in keywords.items():
                bound, given = wide.get(keyword), _given(narrow, keyword)
                if bound is None or bound is False or not kinds & concerned:
                    continue
                if given is None and _listed(narrow) is not None:
                    yield _incomparable(path, f"{keyword} of listed values")
                elif given is None or not _holds(suffices, given, bound):
                    before, after = self._word((given, bound), (bound, given))
                    yield Break(path, f"has another {keyword}: {_said(after)}, before {_said(before)}")

    def _fields(self, narrow: Schema, wide: Schema, path: str, depth: int) -> Iterator[Break]:
        patterns = narrow.get("patternProperties"), wide.get("patternProperties")
        if not self._is_same(*patterns) and wide.get("additionalProperties", True) is not True:
            yield _incomparable(path, "patternProperties differs")
            return
        mine, theirs = narrow.get("properties") or {}, wide.get("properties") or {}
        gone = set() if self.is_input else theirs.keys() - mine.keys()
        for name in sorted(gone):
            yield Break(f"{path}.{name}", "was removed")
        limit = wide.get("additionalProperties", True)
        for name, schema in mine.items():
            if name not in theirs and limit is False:
                what = self._word("is no longer accepted", "is new, and others are excluded")
                yield Break(f"{path}.{name}", what)
            else:
                yield from self._of(schema, theirs.get(name, limit), f"{path}.{name}", depth)
        for name in sorted(set(wide.get("required") or ()) - set(narrow.get("required") or ()) - gone):
            yield Break(f"{path}.{name}", self._word("is required now", "is not always there any more"))
        rest = narrow.get("additionalProperties", True)
        if isinstance(rest, dict) and self.is_input:
            for name in sorted(theirs.keys() - mine.keys()):
                yield from self._of(rest, theirs[name], f"{path}.{name}", depth)
        if limit is False and rest is not False:
            yield Break(path, self._word("takes no other fields any more", "may have other fields now"))
        elif isinstance(limit, dict):
            yield from self._of(rest, limit, f"{path}.*", depth)

    def _items(self, narrow: Schema, wide: Schema, path: str, depth: int) -> Iterator[Break]:
        mine, theirs = narrow.get("prefixItems") or [], wide.get("prefixItems") or []
        if len(mine) != len(theirs):
            yield _incomparable(path, "prefixItems differs")
            return
        for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from self._of(one, other, f"{path}[{number}]", depth)
        if "items" in wide and narrow.get("maxItems") != len(mine):
            yield from self._of(narrow.get("items", True), wide["items"], f"{path}[]", depth)

    def _of_types(self, path: str, kinds: frozenset[str] | set[str]) -> Break:
        names = " or ".join(kind for kind in _TYPES if kind in kinds)
        if kinds >= _ALL:
            names = "any value"
        return Break(path, self._word(f"no longer takes {names}", f"may be {names} now"))

    def _is_same(self, narrow: Any, wide: Any) -> bool:
        """Whether two parts are equal, with all that they refer to."""
        if narrow != wide:
            return False
        text = str(wide)
        references = text.count("'$ref'")
        return not references or (self._same_defs and references == text.count("'$ref': '#/$defs/"))

    def _word(self, of_input: Any, of_output: Any) -> Any:
        return of_input if self.is_input else of_output


class _Input(_Comparison):
    """What the old input schema allows, and the new one does not."""

    is_input = True


class _Output(_Comparison):
    """What the new output schema allows, and the old one does not."""

    is_input = False


def _incomparable(path: str, why: str) -> Break:
    return Break(path, f"cannot be compared ({why})", comparable=False)


def _plain(schema: Any, root: Any) -> Schema | None:
    """A schema without a reference; None: it allows nothing."""
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        target = resolved({"$ref": schema["$ref"]}, root)
        rest = {key: value for key, value in schema.items() if key != "$ref" and key not in _REMARKS}
        if not isinstance(target, dict) or target.get("$ref") == schema["$ref"]:
            return {"not": {"$ref": schema["$ref"]}}  # it points nowhere: no other schema is like it
        schema = {**target, **rest} if rest else target
    if schema is False:
        return None
    return schema if isinstance(schema, dict) else {}


def _merged(schema: Schema, keyword: str, part: Any) -> Any:
    """The schema with one of its choices in it."""
    rest = {key: value for key, value in schema.items() if key not in (keyword, "discriminator")}
    if not rest:
        return part
    if not isinstance(part, dict):
        return rest if part else False
    clash = [key for key in rest.keys() & part.keys() if rest[key] != part[key]]
    return {**rest, **part} if not clash else {**rest, "allOf": [part, {}]}


def _without(schema: Schema, keyword: str) -> Schema:
    return {key: value for key, value in schema.items() if key not in (keyword, "discriminator")}


def _is_discriminated(narrow: Schema, wide: Schema) -> bool:
    """Whether a field says which one of as many choices is meant, in both."""
    choices, others = narrow.get("oneOf"), wide.get("oneOf")
    if not isinstance(choices, list) or not isinstance(others, list) or len(choices) != len(others):
        return False
    told = [_told_apart_by(one) for one in (narrow, wide)]
    return told[0] is not None and told[0] == told[1]


def _told_apart_by(schema: Schema) -> tuple[str, list[str]] | None:
    """The field that says which choice is meant, and its values in the order of the choices."""
    told = schema.get("discriminator")
    if not isinstance(told, dict) or not isinstance(told.get("mapping"), dict):
        return None
    places = [one.get("$ref") if isinstance(one, dict) else None for one in schema["oneOf"]]
    named = {place: value for value, place in told["mapping"].items() if isinstance(place, str)}
    values = [named[place] for place in places if place in named]
    return (str(told.get("propertyName")), values) if len(values) == len(places) == len(named) else None


def _defs(schema: Any) -> Any:
    return schema.get("$defs") if isinstance(schema, dict) else None


def _given(schema: Schema, keyword: str) -> Any:
    """The bound that a schema has; an exclusive one also serves as an inclusive one."""
    given = schema.get(keyword)
    other = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}.get(keyword)
    return schema.get(other) if given is None and other is not None else given


def _by_type(schema: Schema) -> list[Schema]:
    """The schema, or one for each of its types if it has several."""
    values = _listed(schema)
    if values is not None:
        rest = {key: value for key, value in schema.items() if key not in ("const", "enum", "type")}
        kinds = dict.fromkeys(_type_of(value) for value in values)
        return [{**rest, "enum": [one for one in values if _type_of(one) == kind]} for kind in kinds]
    listed = schema.get("type")
    return [{**schema, "type": kind} for kind in listed] if isinstance(listed, list) else [schema]


def _types(schema: Schema) -> frozenset[str]:
    kinds, values = schema.get("type"), _listed(schema)
    if isinstance(kinds, str):
        return frozenset({kinds})
    if isinstance(kinds, list):
        return frozenset(kind for kind in kinds if isinstance(kind, str))
    return _ALL if values is None else frozenset(_type_of(value) for value in values)


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    kinds: dict[type, str] = {float: "number", str: "string", list: "array"}
    return kinds.get(type(value), "object")


def _listed(schema: Schema) -> list[Any] | None:
    """The only values that are allowed; None: they are not listed."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _is_same(one: Any, other: Any) -> bool:
    """Equality in JSON: `True` is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _holds(suffices: Callable[[Any, Any], bool], given: Any, bound: Any) -> bool:
    try:
        return suffices(given, bound)
    except TypeError:
        return False


def _said(value: Any) -> str:
    return "none" if value is None else short(value)
