"""What `run --json` prints of a result."""

from __future__ import annotations

from noesium_stream.cli.answer import result_json


def test_all_that_the_result_holds_is_there_and_the_run_s_own_fields_win() -> None:
    result = {"answer": "yes", "citations": [1], "sources": ["a"], "found": False, "log": "theirs"}
    assert result_json("r", result, 7, "memory://") == {
        "run_id": "r",
        "answer": "yes",
        "citations": [1],
        "sources": ["a"],
        "found": False,
        "events": 7,
        "log": "memory://",
    }


def test_a_result_without_an_answer_is_the_answer_as_a_whole() -> None:
    shown = result_json("r", {"text": "x"}, 7, "memory://")
    assert shown["answer"] == {"text": "x"}
    assert sorted(shown) == ["answer", "citations", "events", "log", "run_id", "sources"]
    assert result_json("r", None, 7, "memory://")["answer"] is None
