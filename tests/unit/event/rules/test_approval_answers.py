from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, EventValidationError, StateError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.rules.approval_answers import answer_value, refusal_of
from noesium_stream.kernel.step.answer import AnswerType


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/schema", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_schema_of_a_question_is_never_fetched(
    server: tuple[str, list[str]], keyword: str, inside: bool
) -> None:
    url, asked = server
    schema: dict[str, Any] = {keyword: url}
    if inside:
        schema = {"$id": url, "properties": {"a": {"anyOf": [{keyword: "other"}]}}}
    refused = refusal_of(
        {"fingerprint": "f", "answer_schema": schema},
        {"fingerprint": "f", "answered_by": "ann", "approved": True, "value": {"a": 1}},
    )
    assert refused is not None
    assert refused.field == "answer_schema"
    assert "loads anything" in refused.reason
    assert asked == []


def test_a_file_is_never_read_as_a_schema(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "string"}')
    with pytest.raises(EventValidationError, match="loads anything"):
        answer_value({"$ref": (tmp_path / "s.json").as_uri()}, True, "text")


def test_a_dialect_is_never_fetched(server: tuple[str, list[str]]) -> None:
    url, asked = server
    assert answer_value({"$schema": url, "type": "string"}, True, "text") == "text"
    AnswerType({"$schema": url, "type": "string"})
    Catalogue().register_schema("order.placed", "1.0.0", {"$schema": url, "type": "object"})
    assert asked == []


def test_the_catalogue_refuses_both_kinds_of_references(server: tuple[str, list[str]]) -> None:
    url, asked = server
    for schema in ({"$ref": "#/$defs/a", "$dynamicRef": url, "$defs": {"a": {}}}, {"$ref": url}):
        with pytest.raises(ConfigError):
            Catalogue().register_schema("order.placed", "1.0.0", schema)
    assert asked == []


def _doubling(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "string"}}}


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def _list(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (_doubling(30), "x", "10,000 parts"),
        (_nested(150), "x", "100 levels"),
        (_nested(5_000), "x", "too deep"),
        ({"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}, _list(60), "steps"),
        ({"$ref": "#/$defs/gone"}, "x", "does not hold"),
        ({"pattern": "((a{1000}){1000}){1000}"}, "x", "regex"),
        ({"type": "nonsense"}, "x", "nonsense"),
    ],
)
def test_a_schema_that_would_hang_the_command_is_refused(schema: Any, value: Any, reason: str) -> None:
    with pytest.raises(EventValidationError) as refused:
        answer_value(schema, True, value)
    assert refused.value.field == "answer_schema"
    assert reason in refused.value.reason


def test_a_pattern_that_backtracks_for_ever_refuses_the_value() -> None:
    with pytest.raises(EventValidationError, match="backtracking"):
        answer_value({"pattern": r"^(?:(a|a)*)*(?!x)\1c$"}, True, "a" * 40 + "d")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#/$defs/tree", "$defs": {"tree": {"items": {"$ref": "#/$defs/tree"}}}}, _list(60)),
        ({"$defs": {"a": {"$anchor": "name", "type": "string"}}, "$ref": "#name"}, "x"),
        ({"properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}}, {"l": {"r": {}}, "r": {"l": {}}}),
        ({"pattern": r"^(?=.*\d)[\w.+-]+@[\w-]+\.[\w.-]+$"}, "ann1@example.org"),
        ({"$ref": "#"}, "x"),
        ({"pattern": r"^\w{1,255}$"}, "x"),
        ({"enum": [f"choice {n}" for n in range(5_000)]}, "choice 4999"),
        ({"properties": {"$ref": {"type": "string"}}}, {"$ref": "http://localhost/"}),
    ],
)
def test_an_honest_schema_judges(schema: Any, value: Any) -> None:
    assert answer_value(schema, True, value) == value


def test_a_question_is_not_asked_with_a_schema_that_nobody_could_answer() -> None:
    with pytest.raises(StateError, match="10,000 parts"):
        AnswerType(_doubling(30))


def test_a_yes_after_a_no_is_late_and_not_wrong() -> None:
    question = {"fingerprint": "f", "answer_schema": None}
    no = {"fingerprint": "f", "answered_by": "ada", "approved": False, "value": None}
    yes = {"fingerprint": "f", "answered_by": "bob", "approved": True, "value": {"always": True}}
    assert refusal_of(question, yes, [no]) is None
    other = {**yes, "answered_by": "eve", "value": None}
    assert refusal_of(question, other, [no, yes]) is not None
