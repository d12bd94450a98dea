from __future__ import annotations

import pytest

from noesium_stream.event import standard, standard_catalogue, standard_events

NAMED = [
    "agent.started",
    "agent.heartbeat",
    "agent.stopped",
    "agent.unavailable",
    "agent.recovered",
    "kernel.node.entered",
    "kernel.node.completed",
    "kernel.node.failed",
    "kernel.node.retried",
    "kernel.checkpoint.created",
    "kernel.signal.awaited",
    "capability.registered",
    "capability.updated",
    "capability.deprecated",
    "capability.requested",
    "capability.invoked",
    "capability.completed",
    "capability.unresolved",
    "tool.invoked",
    "tool.completed",
    "tool.failed",
    "tool.timeout",
    "tool.registered",
    "tool.invocation.requested",
    "tool.invocation.completed",
    "task.requested",
    "task.taken",
    "task.completed",
    "memory.written",
    "system.error.occurred",
    "system.event.validation_failed",
    "command.expired",
    "effect.requested",
    "effect.completed",
    "effect.failed",
    "effect.outcome.unknown",
    "run.requested",
    "run.started",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "partition.acquired",
]

PAYLOADS = {
    "tool.invoked": {"tool_id", "tool_name", "input", "source"},
    "tool.completed": {"tool_id", "tool_name", "output", "duration_ms"},
    "tool.failed": {"tool_id", "tool_name", "error", "duration_ms"},
    "tool.registered": {"tool_id", "name", "source", "capabilities"},
    "tool.timeout": {"tool_id", "tool_name", "timeout_ms"},
    "tool.invocation.requested": {"toolkit_name", "tool_name", "arguments"},
    "tool.invocation.completed": {"toolkit_name", "tool_name", "result", "error"},
    "system.error.occurred": {"error_type", "message", "original_event_id", "stack_trace"},
    "system.event.validation_failed": {"original_event_id", "failure_reason", "validation_trace"},
    "capability.deprecated": {"capability_id", "version", "reason"},
    "kernel.node.completed": {"entropy_sources"},
    "memory.written": {"key", "value", "value_type"},
}


@pytest.mark.parametrize("event_type", NAMED)
def test_an_event_that_the_specifications_name_is_in_the_standard_catalogue(event_type: str) -> None:
    assert event_type in standard_catalogue().types()


@pytest.mark.parametrize("event_type", sorted(PAYLOADS))
def test_a_standard_event_has_the_fields_that_the_specifications_name(event_type: str) -> None:
    schemas = {name: schema for name, _, schema in standard_catalogue().schemas()}
    assert PAYLOADS[event_type] <= schemas[event_type]["properties"].keys()


def test_a_registered_capability_carries_its_whole_schemas_and_metadata() -> None:
    schemas = {name: schema for name, _, schema in standard_catalogue().schemas()}
    assert schemas["capability.registered"]["$defs"]["Capability"]["properties"].keys() == {
        "id",
        "version",
        "description",
        "capability_type",
        "input_schema",
        "output_schema",
        "side_effects",
        "latency_class",
        "determinism_class",
        "tags",
        "required_roles",
        "required_scopes",
        "priority",
        "weight",
    }


def test_every_standard_event_is_exported_documented_and_of_a_type_of_its_own() -> None:
    events = standard_events()
    assert len({event.event_type() for event in events}) == len(events)
    for event in events:
        assert event.__name__ in standard.__all__
        assert event.__doc__
