"""Operations of an OpenAPI document: what a tool needs to know of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from noesium_stream.tool.openapi.document import Document, ProblemError
from noesium_stream.tool.openapi.parameter import STYLES, Parameter, style_of
from noesium_stream.tool.openapi.schema import Converter

METHODS: Final = ("get", "head", "put", "delete", "post", "patch")
MAX_OPERATIONS: Final = 5_000
MAX_SCHEMA_BYTES: Final = 256_000
MAX_DESCRIPTION: Final = 4_000
BODY: Final = "body"
FORM: Final = "application/x-www-form-urlencoded"

_JSON: Final = re.compile(r"application/([a-z0-9.+-]+\+)?json", re.IGNORECASE)
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_PLACE: Final = re.compile(r"\{([^{}/]+)\}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OURS: Final = re.compile(
    r"accept|accept-encoding|authorization|connection|content-.*|cookie|expect|host|idempotency-key|"
    r"keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|user-agent|x-forwarded-.*",
    re.IGNORECASE,
)
"""Headers that no document decides about."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        name: of the tool.
        method, path: with a place `{name}` for each parameter of the path.
        body_type: the media type of the argument `body`; None: it has no body.
        input_schema: of the arguments.
        output_schema: of the result, `{"status": …, "body": …}`.
    """

    name: str
    description: str
    method: str
    path: str
    parameters: tuple[Parameter, ...]
    body_type: str | None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


def operations_of(document: Document, auth_header: str) -> Iterator[tuple[str, Operation | ProblemError]]:
    """Each operation, with its name, or what is wrong with it.

    Args:
        document: where they are.
        auth_header: a header that the toolkit fills; no parameter does.
    """
    paths = document.root.get("paths")
    count = 0
    for path, item in paths.items() if isinstance(paths, dict) else ():
        for method in METHODS:
            if not isinstance(item, dict) or method not in item:
                continue
            count += 1
            where = f"{method.upper()} {path:.200}"
            if count > MAX_OPERATIONS:
                yield where, ProblemError(f"the document has over {MAX_OPERATIONS:,} operations")
                return
            try:
                yield where, _Reading(document, auth_header).operation(path, method, item)
            except ProblemError as problem:
                yield where, problem


class _Reading:
    """Reads one operation."""

    def __init__(self, document: Document, auth_header: str) -> None:
        self._document = document
        self._auth_header = auth_header.lower()
        self._input = Converter(document, "request")
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []

    def operation(self, path: str, method: str, item: dict[str, Any]) -> Operation:
        found = self._document.resolve(item[method])
        if found.get("servers") or item.get("servers"):
            raise ProblemError("it has a server of its own")
        if not path.startswith("/") or not path.isprintable() or set(path) & set("?#\\ "):
            raise ProblemError("its path is none")
        parameters = tuple(self._parameters(path, item, found))
        return Operation(
            name=_name_of(found.get("operationId"), method, path),
            description=_description(found),
            method=method.upper(),
            path=path,
            parameters=parameters,
            body_type=self._body(found),
            input_schema=self._bounded(
                {"properties": self._properties, "required": self._required, "additionalProperties": False},
                self._input,
            ),
            output_schema=self._output(found),
        )

    def _parameters(self, path: str, item: dict[str, Any], operation: dict[str, Any]) -> Iterator[Parameter]:
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for declared in (*_list(item.get("parameters")), *_list(operation.get("parameters"))):
            one = self._document.resolve(declared)
            place, name = one.get("in"), one.get("name")
            if not isinstance(place, str) or not isinstance(name, str) or not 0 < len(name) <= 200:
                raise ProblemError("a parameter has no name or no place")
            found[place, name] = one
        if {name for place, name in found if place == "path"} != set(_PLACE.findall(path)):
            raise ProblemError("the parameters of its path do not fit the path")
        for (place, name), one in found.items():
            if self._is_ours(place, name):
                continue
            if place not in STYLES or (place == "header" and _TOKEN.fullmatch(name) is None):
                if one.get("required") is True:
                    raise ProblemError(f"it needs a parameter in a {place:.20}")
                continue
            yield self._parameter(place, name, one)

    def _is_ours(self, place: str, name: str) -> bool:
        if place != "header":
            return False
        return _OURS.fullmatch(name) is not None or name.lower() == self._auth_header

    def _parameter(self, place: str, name: str, one: dict[str, Any]) -> Parameter:
        content = one.get("content")
        schema = one.get("schema", {})
        as_json = isinstance(content, dict)
        if as_json:
            schema = self._json_of(content)[1]
        style, explode = (STYLES[place][0], False) if as_json else style_of(one)
        argument = _clean_name(name)
        if argument in self._properties or argument == BODY:
            argument = f"{place}_{argument}"
        if argument in self._properties:
            raise ProblemError("two parameters have the same name")
        required = place == "path" or one.get("required") is True
        self._add(argument, schema, required, one.get("description"))
        return Parameter(argument, name, place, style, explode, as_json)

    def _body(self, operation: dict[str, Any]) -> str | None:
        if "requestBody" not in operation:
            return None
        body = self._document.resolve(operation["requestBody"])
        media_type, schema = self._json_of(body.get("content"), also=FORM)
        self._add(BODY, schema, body.get("required") is True, body.get("description"))
        return media_type

    def _json_of(self, content: Any, also: str | None = None) -> tuple[str, Any]:
        types = content if isinstance(content, dict) else {}
        for media_type, one in types.items():
            bare = media_type.partition(";")[0].strip().lower()
            if _JSON.fullmatch(bare) or bare == also:
                return bare, one.get("schema", {}) if isinstance(one, dict) else {}
        raise ProblemError("what it takes is no JSON")

    def _add(self, argument: str, schema: Any, required: bool, description: Any) -> None:
        converted = self._input.convert(schema)
        if isinstance(description, str) and isinstance(converted, dict) and "$ref" not in converted:
            converted = {"description": description[:1_000], **converted}
        self._properties[argument] = converted
        if required:
            self._required.append(argument)

    def _output(self, operation: dict[str, Any]) -> dict[str, Any]:
        converter = Converter(self._document, "response")
        bodies: list[Any] = []
        for status, declared in _map(operation.get("responses")).items():
            if status.startswith("2"):
                bodies.append(self._of_response(declared, converter))
        unique = {orjson.dumps(body, option=orjson.OPT_SORT_KEYS): body for body in bodies}
        body = (list(unique.values()) or [True])[0] if len(unique) < 2 else {"anyOf": list(unique.values())}
        fields = {"status": {"type": "integer"}, BODY: body}
        return self._bounded({"properties": fields, "required": ["status", BODY]}, converter)

    def _of_response(self, declared: Any, converter: Converter) -> Any:
        response = self._document.resolve(declared)
        content = _map(response.get("content"))
        if not content:
            return {"type": "null"}
        try:
            return converter.convert(self._json_of(content)[1])
        except ProblemError:
            return True

    def _bounded(self, schema: dict[str, Any], converter: Converter) -> dict[str, Any]:
        whole = {"type": "object", **schema}
        if converter.definitions:
            whole["$defs"] = converter.definitions
        try:
            size = len(orjson.dumps(whole))
        except TypeError:
            raise ProblemError("its schemas are too deep or hold a number that is none") from None
        if size > MAX_SCHEMA_BYTES:
            raise ProblemError(f"its schemas have more than {MAX_SCHEMA_BYTES:,} bytes")
        return whole


def _name_of(operation_id: Any, method: str, path: str) -> str:
    return _clean_name(operation_id if isinstance(operation_id, str) and operation_id else f"{method}_{path}")


def _clean_name(text: str) -> str:
    """A name that every model takes."""
    name = _NOT_IN_NAME.sub("_", text[:500]).strip("_.-")[:64]
    if not name:
        raise ProblemError("it has a name without letters")
    return name


def _description(operation: dict[str, Any]) -> str:
    texts = (operation.get("summary"), operation.get("description"))
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)[:MAX_DESCRIPTION]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
