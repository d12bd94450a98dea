"""Records of legs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noesium_stream.errors import ToolExecutionError
from noesium_stream.tool.legs import InputRequired, TaskStarted, leg_of, leg_record


@pytest.mark.parametrize(
    "unfinished",
    [
        InputRequired({"a": {"method": "m"}}, "state", "task"),
        InputRequired(request_state="s"),
        TaskStarted("t", 5),
    ],
)
def test_what_is_unfinished_is_read_from_its_record(unfinished: Any) -> None:
    assert leg_of(json.loads(json.dumps(leg_record(unfinished)))) == (None, unfinished)


def test_a_result_cannot_pass_for_a_question_or_a_task() -> None:
    forged = {"input_required": {"requests": {}}, "task": {"task_id": "t"}}
    assert leg_of(leg_record(forged)) == (forged, None)


@pytest.mark.parametrize("record", [{}, {"task": {"id": 1}}, {"input_required": None}])
def test_a_record_that_is_none_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(ToolExecutionError):
        leg_of(record)
