"""Where a failure came from is on the log: the user's own line, and a traceback without the machinery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.errors import NodeExecutionError, RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.kernel.failure_location import LIMIT, traceback_of, where_of
from noesium_stream.kernel.recording.recorded_run import canonical_history, dump_history, load_history
from noesium_stream.testing import Rehearsal
from noesium_stream.worker.runs.fork_history import read_recorded


def parse(text: str) -> Any:
    return json.loads(text)


async def read(state: dict[str, Any]) -> dict[str, Any]:
    return {"n": await current_step().effect("parse", parse, "{")}


def read_here(state: dict[str, Any]) -> dict[str, Any]:
    return {"n": parse("{")}


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize("node", [read, read_here])
async def test_the_user_s_own_line_and_its_traceback_are_on_the_log(node: Any) -> None:
    graph = StateGraph(dict).add_node("read", node).add_edge(START, "read")
    async with Rehearsal(graph) as rehearsal:
        run = await rehearsal.start({})
        with pytest.raises(RunFailedError) as told:
            await run.result()
        events = {event.event_type: event.payload async for event in run.events()}
        recorded = await read_recorded(rehearsal.log, run.agent_type, run.id, "tests:graph")
    here = f"tests/unit/kernel/test_failure_location.py:{line_of('return json.loads(text)')} in parse"
    failed = events["kernel.node.failed"]
    assert failed["where"] == events["run.failed"]["where"] == here
    assert f"at {here}" in str(told.value.hint)
    assert f"in {node.__name__}" in failed["traceback"]
    assert failed["traceback"].splitlines()[-1].startswith("json.decoder.JSONDecodeError: ")
    for machinery in ("langgraph", "noesium_stream", "asyncio"):
        assert machinery not in failed["traceback"]
    text = dump_history(recorded)
    assert "traceback" not in text
    assert "test_failure_location.py" not in text
    assert canonical_history(load_history(text)) == canonical_history(recorded)


def test_a_long_traceback_keeps_its_end() -> None:
    try:
        raise ValueError("x" * 10_000 + "end")
    except ValueError as error:
        text = traceback_of(error)
    assert text is not None
    assert len(text) == LIMIT
    assert text.endswith("xend")


def test_what_caused_an_error_comes_before_it() -> None:
    try:
        try:
            parse("{")
        except ValueError as error:
            raise KeyError("second") from error
    except KeyError as error:
        text = traceback_of(error) or ""
    assert text.index("JSONDecodeError") < text.index("KeyError: 'second'")


def test_a_recorded_failure_says_what_is_recorded() -> None:
    with pytest.raises(NodeExecutionError) as raised:
        raise NodeExecutionError("E: x", recorded=("E", "x"), where="a.py:1 in f")
    assert where_of(raised.value) == "a.py:1 in f"
    assert traceback_of(raised.value) is None


def test_an_error_that_nobody_raised_has_no_place() -> None:
    assert where_of(ValueError("x")) is None
    assert traceback_of(ValueError("x")) is None
