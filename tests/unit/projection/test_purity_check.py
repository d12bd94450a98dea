"""A projection that is not pure is found out: the event, and the field or the line, are named."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import random
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from noesium_stream.errors import ImpureProjectionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.purity_check import PurityCheck
from tests.support.events import counted
from tests.support.folding import TOPIC, History, InPlace, fold_of, numbered

Apply = Callable[[Any, EventEnvelope], Any]


class Doing(BaseProjection[dict[str, Any]]):
    name = "doing"

    def __init__(self, do: Apply) -> None:
        self.do = do
        self.calls = 0

    def initial_state(self) -> dict[str, Any]:
        return {"n": 0}

    def apply(self, state: dict[str, Any], event: EventEnvelope) -> Any:
        self.calls += 1
        return self.do(state, event)


def checked(projection: BaseProjection[Any], n: int = 1) -> Any:
    check = PurityCheck(projection)
    return check(projection.apply, projection.initial_state(), counted(n, "a"))


def put(**fields: Callable[[], Any]) -> Apply:
    """An `apply` that puts what these return into the state."""
    return lambda state, event: {**state, **{name: str(make()) for name, make in fields.items()}}


READS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "time": (time.time, "reads the clock", r"time\.time"),
    "now": (lambda: datetime.datetime.now(datetime.UTC), "reads the clock", r"datetime\.now"),
    "uuid4": (uuid.uuid4, "draws on chance", r"os\.urandom"),
    "random": (lambda: random.random(), "draws on chance", r"random\.random"),
    "unseeded": (lambda: random.Random().random(), "draws on chance", "without a seed"),
    "hash": (lambda: hash("a"), "draws on chance", r"hash\(\)"),
    "id": (lambda: id("a"), "draws on chance", r"id\(\)"),
    "socket": (lambda: socket.getaddrinfo("localhost", 1), "uses the network", "getaddrinfo"),
    "open": (lambda: open(__file__).read(1), "uses files", "open"),  # noqa: SIM115
    "path": (lambda: Path(__file__).exists(), "uses files", r"os\.stat"),
    "environ": (lambda: os.environ["PATH"], "reads the environment", r"os\.environ"),
    "getenv": (lambda: os.getenv("PATH"), "reads the environment", r"os\.environ"),
}


@pytest.mark.parametrize("name", READS)
def test_what_apply_may_not_read_is_named_with_its_line(name: str) -> None:
    make, verb, what = READS[name]
    with pytest.raises(
        ImpureProjectionError,
        match=rf"`apply` of the projection doing {verb} at \S*test_purity_check.py:\d+ "
        rf"\(.*{what}.*\) on the event demo.counted [0-9a-f-]{{36}}\.",
    ) as raised:
        checked(Doing(lambda state, event: {"n": make()}))
    assert raised.value.hint


def test_what_is_swallowed_is_found_too() -> None:
    def swallow(state: Any, event: EventEnvelope) -> Any:
        try:
            return {"n": time.time()}
        except Exception:
            return {"n": 0}

    with pytest.raises(ImpureProjectionError, match="reads the clock"):
        checked(Doing(swallow))


class Stamped(BaseModel):
    at: float = 0.0


def test_what_libraries_read_for_apply_is_found() -> None:
    with pytest.raises(ImpureProjectionError, match="uses files"):
        checked(Doing(lambda state, event: {"n": json.load(open(__file__))}))  # noqa: SIM115


def test_the_guard_is_gone_afterwards() -> None:
    with pytest.raises(ImpureProjectionError):
        checked(Doing(put(t=time.time)))
    assert time.time() > 0
    assert os.environ["PATH"]
    assert open(__file__).read(1)  # noqa: SIM115


PURE: dict[str, Apply] = {
    "sums": lambda state, event: {"n": state["n"] + event.payload["n"]},
    "hashes": lambda state, event: {"n": hashlib.sha256(event.event_id.encode()).hexdigest()},
    "times": lambda state, event: {
        "n": datetime.datetime.fromtimestamp(event.timestamp_ms / 1000, datetime.UTC).isoformat()
    },
    "seeded": lambda state, event: {"n": random.Random(event.payload["n"]).random()},
    "copies": lambda state, event: json.loads(json.dumps(state)),
    "nothing": lambda state, event: state,
    "removes": lambda state, event: None,
    "models": lambda state, event: Stamped(at=event.timestamp_ms).model_dump(),
    "parses": lambda state, event: {"n": str(uuid.UUID(event.event_id))},
}


@pytest.mark.parametrize("name", PURE)
def test_what_is_pure_passes(name: str) -> None:
    projection = Doing(PURE[name])
    event = counted(3, "a")
    check = PurityCheck(projection)
    assert check(projection.apply, {"n": 1}, event) == PURE[name]({"n": 1}, event)
    assert check(projection.key, event) == ""


class Counter:
    n = 0

    def next(self) -> int:
        self.n += 1
        return self.n


def test_another_result_the_second_time_is_an_error_that_names_the_field() -> None:
    counter = Counter()
    with pytest.raises(
        ImpureProjectionError, match=r"had another result when it was called again: state.a.1.b: 1, then 2"
    ):
        checked(Doing(lambda state, event: {"a": [0, {"b": counter.next()}]}))


def test_a_projection_that_remembers_is_found() -> None:
    class Remembers(Doing):
        def apply(self, state: dict[str, Any], event: EventEnvelope) -> Any:
            self.calls += 1
            return {"n": self.calls}

    with pytest.raises(ImpureProjectionError, match=r"state.n: 1, then 2"):
        checked(Remembers(PURE["nothing"]))


def mutating(state: dict[str, Any], event: EventEnvelope) -> Any:
    state["n"] += 1
    return state


def test_a_state_that_is_changed_in_place_is_an_error_unless_it_is_said() -> None:
    with pytest.raises(
        ImpureProjectionError, match=r"changed the state that it was given: state.n: 0, then 1 on"
    ) as raised:
        checked(Doing(mutating))
    assert "in_place = True" in str(raised.value)

    class Said(Doing):
        in_place = True

    assert checked(Said(mutating)) == {"n": 1}


def test_an_event_that_is_changed_is_an_error() -> None:
    def change(state: Any, event: EventEnvelope) -> Any:
        event.payload["n"] = 9
        return state

    with pytest.raises(ImpureProjectionError, match=r"changed the event: event.payload.n: 1, then 9"):
        checked(Doing(change))


def test_a_result_that_rests_on_what_is_not_stored_is_an_error() -> None:
    projection = Doing(lambda state, event: {"n": str(type(state["n"]))})
    check = PurityCheck(projection)
    with pytest.raises(
        ImpureProjectionError, match=r"of the state that had not been stored: state.n: .*list.*tuple"
    ):
        check(projection.apply, {"n": (1, 2)}, counted(1, "a"))


def test_a_key_has_to_be_the_same_twice() -> None:
    counter = Counter()

    class Turning(History):
        def key(self, event: Any) -> str:
            return str(counter.next())

    projection = Turning()
    with pytest.raises(ImpureProjectionError, match=r"`key` of the projection history returned '1', and '2'"):
        PurityCheck(projection)(projection.key, counted(1, "a"))


SHARED: list[int] = []


def test_an_initial_state_is_a_new_one_each_time() -> None:
    class Shares(History):
        def initial_state(self) -> list[int]:
            return SHARED

    with pytest.raises(
        ImpureProjectionError, match="`initial_state` of the projection history returned the same object"
    ):
        PurityCheck(Shares())

    class Late(History):
        def initial_state(self) -> list[int]:
            return [time.time_ns()]

    with pytest.raises(ImpureProjectionError, match=r"`initial_state` .* reads the clock"):
        PurityCheck(Late())


def test_an_error_of_apply_is_its_own() -> None:
    projection = History()
    with pytest.raises(ValueError, match="-1 is refused"):
        PurityCheck(projection)(projection.apply, [], counted(-1, "a"))
    calls = Counter()

    def fails_later(state: Any, event: EventEnvelope) -> Any:
        if calls.next() > 1:
            raise ValueError("no more")
        return state

    with pytest.raises(ImpureProjectionError, match="failed when it was called again: ValueError: no more"):
        checked(Doing(fails_later))


@pytest.mark.parametrize("kind", [History, InPlace])
def test_a_checked_fold_has_the_same_state(tmp_path: Path, kind: type[History]) -> None:
    numbers = [("a", 1), ("b", -1), ("a", 2), ("b", 3), ("a", 0), ("a", 5)]
    states = []
    for name, check in (("plain", None), ("checked", PurityCheck(projection := kind()))):
        fold = fold_of(projection, tmp_path / name, call=check)
        fold.take(numbered(numbers))
        fold.flush()
        states.append([dict(fold.rows()), fold.manifest.held])
        fold.file.close()
    assert states[0] == states[1] == [{"a": [5]}, 2]


def test_a_checked_fold_says_where_and_writes_nothing(tmp_path: Path) -> None:
    class Late(History):
        def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
            return [*state, time.time_ns() if event.payload["n"] == 3 else event.payload["n"]]

    fold = fold_of(projection := Late(), tmp_path / "a.state", call=PurityCheck(Late()))
    fold.file.close()
    fold = fold_of(projection, tmp_path / "a.state", call=PurityCheck(projection))
    fold.take(numbered([("a", 1)]))
    fold.flush()
    with pytest.raises(
        ImpureProjectionError, match=rf"^{TOPIC}/0@2: `apply` of the projection history reads the clock"
    ):
        fold.take(numbered([("a", 2), ("a", 3)], 1))
    fold.flush()
    assert (dict(fold.rows()), fold.cursor) == ({"a": [1]}, 1)
    fold.file.close()


class Merged(Doing):
    """Its parts are put together by what is given."""

    def __init__(self, merged: Callable[[Any, Any], Any], begins: int = 0) -> None:
        super().__init__(lambda state, event: {"n": state["n"] + 1, "mean": 2.0})
        self.merged = merged
        self.begins = begins

    def initial_state(self) -> dict[str, Any]:
        return {"n": self.begins}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.merged(a, b)
        return found


def test_a_merge_that_keeps_all_is_let_pass() -> None:
    assert checked(Merged(lambda a, b: {**b, **a, "n": a["n"] + b["n"]})) == {"n": 1, "mean": 2.0}


def test_a_merge_that_refuses_what_never_meets_is_let_pass() -> None:
    assert checked(Merged(lambda a, b: {"mean": a["mean"] + b["mean"]})) == {"n": 1, "mean": 2.0}


@pytest.mark.parametrize(
    ("projection", "said"),
    [
        (Merged(lambda a, b: {"n": a["n"] + b["n"]}), "state.mean: 2.0, then 'missing'"),
        (Merged(lambda a, b: {**b, **a, "n": a["n"] + b["n"]}, begins=100), "state.n: 101, then 201"),
        (Merged(lambda a, b: None), "state: "),
    ],
)
def test_a_merge_that_is_not_neutral_beside_an_empty_part_is_found(projection: Merged, said: str) -> None:
    with pytest.raises(ImpureProjectionError) as raised:
        checked(projection)
    assert raised.value.message.startswith("`merge` of the projection doing ")
    assert said in raised.value.message
    assert raised.value.hint is not None
    assert "neutral" in raised.value.hint
