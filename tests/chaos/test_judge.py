"""Who called, and who owned the run by then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.chaos.check import wrong_ends
from tests.chaos.cluster_judge import called_late, callers
from tests.support.book import Book, Call


def record(event_type: str, at_s: float, instance: str, **payload: str) -> Any:
    envelope = SimpleNamespace(payload=payload, producer=SimpleNamespace(instance_id=instance))
    return SimpleNamespace(event_type=event_type, partition=0, timestamp_ms=at_s * 1000, envelope=envelope)


def acquired(at_s: float, instance: str) -> Any:
    return record("partition.acquired", at_s, instance, instance_id=instance)


def intent(at_s: float, instance: str, key: str) -> Any:
    return record("effect.requested", at_s, instance, idempotency_key=key)


def judged(journal: list[Any], calls: list[Call]) -> list[str]:
    book = Book(journals={"caller": journal})
    names = callers(book, calls)
    return called_late(book, calls, lambda event: names.get(event.payload["instance_id"], "nobody known"))


def test_an_owner_that_was_killed_before_its_first_sign_of_life_is_known_by_the_calls_it_announced() -> None:
    calls = [Call("k", "external", "w1", "vm/1", 3.0)]
    assert judged([acquired(1.0, "a"), intent(2.0, "a", "k")], calls) == []


def test_a_former_owners_call_is_late_whoever_gave_a_sign_of_life() -> None:
    journal = [acquired(1.0, "a"), intent(2.0, "a", "k"), acquired(3.0, "b"), intent(4.0, "b", "l")]
    calls = [Call("k", "external", "w1", "vm/1", 5.0), Call("l", "external", "w2", "vm/2", 5.0)]
    assert [fault.partition(" (")[0] for fault in judged(journal, calls)] == ["late: vm/1 called w1"]


def test_calls_of_two_processes_under_one_name_tell_nobodys() -> None:
    journal = [acquired(1.0, "a"), intent(2.0, "a", "k"), intent(2.0, "a", "l")]
    calls = [Call("k", "external", "w1", "vm/1", 3.0), Call("l", "external", "w2", "vm/2", 3.0)]
    assert len(judged(journal, calls)) == 2


def event(event_type: str, **payload: Any) -> Any:
    return SimpleNamespace(event_type=event_type, payload=payload)


def test_a_run_may_be_cancelled_by_the_failure_of_its_caller_alone() -> None:
    failed = event("run.failed", error_type="EffectFailedError", message="told to fail")
    child = [event("capability.requested", reply_to={"run_id": "caller"}), event("run.cancelled")]
    assert list(wrong_ends(Book(runs={"caller": [failed], "child": child}))) == []
    alone = [event("run.requested"), event("run.cancelled")]
    ended = Book(runs={"caller": [event("run.completed")], "child": child, "alone": alone})
    assert list(wrong_ends(ended)) == [
        f"failed: run {one} ended as run.cancelled" for one in ("child", "alone")
    ]
