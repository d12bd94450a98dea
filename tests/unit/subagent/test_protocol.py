"""JSON lines: what is written, and what a program may answer."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import SubagentProtocolError
from noesium_stream.subagent.lifecycle import Answer, Request
from noesium_stream.subagent.protocol import MAX_STRAYS, Dialogue, JsonLines, shown

ASKED = Request("r1", "list.sum", {"numbers": [1, 2], "text": "a\nb"}, {"session": "s"})


def asked() -> Dialogue:
    dialogue = JsonLines().dialogue()
    dialogue.ask(ASKED)
    return dialogue


def line(**said: Any) -> bytes:
    return json.dumps(said).encode()


def test_a_request_is_one_line_with_the_four_fields() -> None:
    written = JsonLines().dialogue().ask(ASKED)
    assert written.endswith(b"\n")
    assert written.count(b"\n") == 1
    assert json.loads(written) == {
        "request_id": "r1",
        "task": "list.sum",
        "payload": {"numbers": [1, 2], "text": "a\nb"},
        "context": {"session": "s"},
    }


@pytest.mark.parametrize("value", [3, None, {"a": [1]}, "text", False])
def test_a_result_is_any_json_value(value: Any) -> None:
    assert asked().hear(line(request_id="r1", result=value, more="ignored")) == Answer(value)


def test_an_error_is_the_program_s_own_and_harmless_on_a_terminal() -> None:
    said = asked().hear(line(request_id="r1", error="no such \x1b[31mfile"))
    assert said == Answer(error="no such \\x1b[31mfile")
    said = asked().hear(line(request_id="r1", error={"code": 7}))
    assert said == Answer(error='{"code":7}')


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "is not JSON"),
        (b"ready", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"request_id": "r1", "request_id": "r1"}', "r1"),
        (b"[" * 100_000, "is not JSON|deeper"),
        (b"[1]", "without a request_id"),
        (b'{"result": 1}', "without a request_id"),
        (b'{"request_id": 7, "result": 1}', "without a request_id"),
        (b'{"request_id": "r2", "result": 1}', "a request that it was not asked"),
        (b'{"request_id": "r1"}', "neither a result nor an error"),
        (b'{"request_id": "r1", "result": NaN}', "is not JSON"),
    ],
)
def test_anything_else_is_an_error_that_shows_little_of_it(said: bytes, why: str) -> None:
    with pytest.raises(SubagentProtocolError, match=why) as raised:
        asked().hear(said)
    assert len(raised.value.message) < 400


def test_an_answer_that_comes_twice_counts_once() -> None:
    dialogue = asked()
    assert dialogue.hear(line(request_id="r1", result=1)) == Answer(1)
    assert dialogue.hear(line(request_id="r1", result=2)) is None
    dialogue.ask(ASKED._replace(request_id="r2"))
    assert dialogue.hear(line(request_id="r1", result=3)) is None
    assert dialogue.hear(line(request_id="r2", result=4)) == Answer(4)


def test_a_program_that_repeats_without_end_is_refused() -> None:
    dialogue = asked()
    dialogue.hear(line(request_id="r1", result=1))
    for _ in range(MAX_STRAYS):
        assert dialogue.hear(line(request_id="r1", result=1)) is None
    with pytest.raises(SubagentProtocolError, match="repeated an answer 101 times"):
        dialogue.hear(line(request_id="r1", result=1))


def test_a_program_that_talks_before_it_is_asked_is_refused() -> None:
    with pytest.raises(SubagentProtocolError, match="not asked"):
        JsonLines().dialogue().hear(line(request_id="r1", result=1))


@given(st.binary(max_size=200) | st.text(max_size=80).map(str.encode))
def test_any_line_is_an_answer_or_a_typed_error(said: bytes) -> None:
    with suppress(SubagentProtocolError):
        asked().hear(said)
    assert not set(shown(said)) & {"\n", "\x1b"}
