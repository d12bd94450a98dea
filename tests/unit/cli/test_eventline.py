"""An event as one line."""

from __future__ import annotations

from noesium_stream.cli.eventline import event_details


def test_the_state_of_a_sub_agent_is_told_with_its_reason() -> None:
    changed = {"session": "s", "previous": "BUSY", "state": "TERMINATED", "reason": "jq did not answer"}
    assert event_details(changed) == "TERMINATED  jq did not answer"


def test_the_state_of_a_migrated_run_is_not_told() -> None:
    assert event_details({"state": {"a": 1}, "reason": "a new version"}) == "a new version"


def test_an_event_about_an_agent_names_it_whoever_says_so() -> None:
    missing = {"agent_id": "stall", "agent_type": "stall", "reason": "no heartbeat for 30 s"}
    assert event_details(missing) == "stall  no heartbeat for 30 s"


def test_a_call_of_a_tool_names_the_tool_before_its_arguments() -> None:
    called = {"call_id": "c", "tool_id": "greet", "tool_name": "greet", "input": {"name": "ada"}}
    assert event_details(called) == "greet  ada"
    assert event_details({"tool_name": "greet", "duration_ms": 45}) == "greet  45 ms"
    hidden = {**called, "tool_name": "x" * 500, "input": {"tool_name": "greet"}}
    assert event_details(hidden) == "x" * 79 + "…"
