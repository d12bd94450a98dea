"""The fold of memory's events against its definition, in any order."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.memory.fact import FACT, Fact, Retraction, live_facts, unbelieved
from noesium_stream.memory.fold import COLUMNS, SCHEMA, MemoryFold, fact_of

IDS = [f"f{number}" for number in range(8)]
SOURCES = ["web:a", "web:b", *(FACT + one for one in IDS)]
Told = Fact | Retraction


def folded(events: Sequence[Told]) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(SCHEMA)
    fold = MemoryFold(db, 1)
    for one in events:
        fold.apply(one)
    return db


def live_in(db: sqlite3.Connection) -> list[Fact]:
    rows = db.execute(f"SELECT {COLUMNS} FROM fact WHERE live = 1 ORDER BY at_ms DESC, event_id DESC")
    return [fact_of(row) for row in rows]


def defined(events: Sequence[Told]) -> list[Fact]:
    facts = [one for one in events if isinstance(one, Fact)]
    return live_facts(facts, unbelieved(one for one in events if isinstance(one, Retraction)))


some = st.lists(st.sampled_from(IDS), max_size=3, unique=True).map(tuple)
one_fact = st.builds(
    Fact,
    id=st.sampled_from(IDS),
    scope=st.sampled_from(["user:ada", "shared"]),
    key=st.sampled_from(["a", "b"]),
    value=st.integers(0, 9),
    at_ms=st.integers(1, 4),
    agent_id=st.just("clerk"),
    event_id=st.uuids().map(str),
    deleted=st.booleans(),
    replaces=st.none() | some,
    stands_for=some,
    sources=st.lists(st.sampled_from(SOURCES), max_size=2, unique=True).map(tuple),
)
one_retraction = st.builds(
    Retraction,
    source=st.sampled_from(SOURCES),
    at_ms=st.integers(1, 4),
    event_id=st.uuids().map(str),
    by=st.just("ada"),
    restored=st.booleans(),
)
histories = st.tuples(
    st.lists(one_fact, max_size=8, unique_by=lambda fact: fact.id),
    st.lists(one_retraction, max_size=5, unique_by=lambda told: told.event_id),
)


@given(histories, st.randoms(use_true_random=False))
def test_the_fold_is_its_definition_in_any_order(
    history: tuple[list[Fact], list[Retraction]], chance: random.Random
) -> None:
    events: list[Told] = [*history[0], *history[1]]
    wanted = defined(events)
    for _ in range(3):
        chance.shuffle(events)
        assert live_in(folded([*events, *events[:3]])) == wanted


def fact(fact_id: str, at_ms: int, value: object = None, **more: object) -> Fact:
    return Fact(fact_id, "user:ada", "tier", value, at_ms, "clerk", "e", **more)  # type: ignore[arg-type]


def retracted(source: str, at_ms: int = 9, *, restored: bool = False) -> Retraction:
    return Retraction(source, at_ms, f"r{at_ms}", "ada", restored)


def values(events: Sequence[Told]) -> list[object]:
    db = folded(events)
    assert live_in(db) == defined(events)
    return [one.value for one in live_in(db)]


def test_a_correction_replaces_and_does_not_multiply() -> None:
    assert values([fact("a", 1, "silver"), fact("b", 2, "gold")]) == ["gold"]
    assert values([fact("a", 1, "silver"), fact("b", 2, "gold", replaces=("a",))]) == ["gold"]


def test_two_corrections_that_did_not_know_of_each_other_stand_side_by_side() -> None:
    old, new = fact("a", 1, "silver"), fact("b", 2, "gold", replaces=("a",))
    other = fact("c", 3, "bronze", replaces=("a",))
    assert values([old, new, other]) == ["bronze", "gold"]
    assert values([old, new, other, fact("d", 4, "gold", replaces=("b", "c"))]) == ["gold"]


def test_what_a_retracted_fact_had_replaced_is_back() -> None:
    events = [fact("a", 1, "silver"), fact("b", 2, "gold", sources=("web:a",))]
    assert values([*events, retracted("web:a")]) == ["silver"]
    assert values([*events, retracted("web:a"), retracted("web:a", 10, restored=True)]) == ["gold"]


def test_what_was_derived_from_a_retracted_fact_is_gone_as_well() -> None:
    first = fact("a", 1, "rich", sources=("web:a",))
    derived = Fact("b", "user:ada", "offer", "yacht", 2, "clerk", "e", sources=(FACT + "a",))
    assert values([first, derived]) == ["yacht", "rich"]
    assert values([first, derived, retracted("web:a")]) == []
    assert values([first, derived, retracted(FACT + "b")]) == ["rich"]


def test_a_summary_stands_for_others_and_gives_them_back() -> None:
    told = [fact(f"f{number}", number, number, replaces=()) for number in range(3)]
    summary = Fact("s", "user:ada", "summary", "0 to 2", 9, "clerk", "e", stands_for=("f0", "f1", "f2"))
    assert values([*told, summary]) == ["0 to 2"]
    assert values([*told, summary, retracted(FACT + "s", 10)]) == [2, 1, 0]


def test_a_fact_replaces_none_of_another_scope() -> None:
    mine = fact("a", 1, "silver")
    other = Fact("b", "user:bob", "tier", "gold", 2, "clerk", "e", replaces=("a",))
    assert values([mine, other]) == ["gold", "silver"]
