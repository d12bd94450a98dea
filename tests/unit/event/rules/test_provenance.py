"""Where data comes from: in forks and in later segments, too, a fold over the run's own records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from noesium_stream.event.rules.provenance import SAID, Provenance
from noesium_stream.event.standard.agent import UNKNOWN_LABEL

ADA, BOB = {"to": "ada"}, {"to": "bob"}
FETCHED = ("web",)


def event(event_id: str, event_type: str, payload: dict[str, Any], cause: str | None = None) -> Any:
    return SimpleNamespace(
        event_id=event_id, event_type=event_type, payload={"run_id": "r", **payload}, causation_id=cause
    )


def entered(event_id: str, step: int) -> Any:
    return event(event_id, "kernel.node.entered", {"step": step, "task_path": "pull:node"})


def segment(run_id: str = "r", labels: Any = ("document",), said: str = "bob") -> Any:
    carried = {"labels": list(labels), "said": said}
    return event("s", "run.segment.started", {"run_id": run_id, "carried": carried})


def of_run(*events: Any, fork: dict[str, Any] | None = None) -> Provenance:
    found = Provenance()
    begin = [event("c", "run.requested", {"input": ADA, "fork": fork}), event("b", "run.started", {})]
    for one in (*begin, *events):
        found.apply(one)
    return found


def fetched(at: str, step: int) -> list[Any]:
    return [
        entered(at, step),
        event(f"i{at}", "tool.invoked", {"call_id": at}, at),
        event(f"d{at}", "tool.completed", {"call_id": at, "labels": list(FETCHED)}, f"i{at}"),
    ]


def test_a_segment_begins_with_what_it_carries_over_alone() -> None:
    run = of_run(*fetched("e1", 1), segment(), entered("e2", 2))
    assert run.of_arguments("e2", ADA) == {"to": ("document",)}
    assert run.of_arguments("e2", BOB) == {}
    assert run == of_run(segment(), entered("e2", 2))


def test_the_segment_of_the_parent_changes_nothing_in_a_fork() -> None:
    fork = {"labels": list(FETCHED), "said": "ada"}
    run = of_run(segment(run_id="parent"), entered("e", 3), fork=fork)
    assert run == of_run(entered("e", 3), fork=fork)
    assert (run.of_arguments("e", ADA), run.of_arguments("e", BOB)) == ({}, {"to": FETCHED})


def test_what_an_erased_segment_carried_over_is_what_was_known() -> None:
    erased = event("s", "run.segment.started", {"carried": {"erased": True}})
    run = of_run(*fetched("e1", 1), erased, entered("e2", 2))
    assert run.of_arguments("e2", ADA) == {"to": FETCHED}


@pytest.mark.parametrize(
    ("labels", "found"), [([], {}), (["web"], {"to": ("web",)}), (None, {"to": (UNKNOWN_LABEL,)})]
)
def test_a_fork_begins_with_the_labels_of_its_command(labels: Any, found: dict[str, Any]) -> None:
    run = of_run(entered("e", 3), fork={"labels": labels, "said": ""})
    assert run.of_arguments("e", ADA) == found


def test_labels_until_a_step_are_those_of_the_steps_up_to_it() -> None:
    run = of_run(*fetched("e2", 2), fork={"labels": ["document"]})
    assert run.until(1) == {"document"}
    assert run.until(2) == {"document", "web"}


def test_of_what_people_have_said_the_end_goes_on_with_what_is_said_now() -> None:
    run = of_run()
    assert run.said_until_now() == run.said == "\nada"
    assert run.said_until_now(["bob", 7]) == "\nada\nbob\n7"
    run.said = "x" * SAID
    assert run.said_until_now("bob") == f"{'x' * (SAID - 4)}\nbob"
