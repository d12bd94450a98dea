"""Queries of a `MemoryStore`: by key, by filter, of the past, and why something is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.errors import AgentMemoryError
from noesium_stream.memory.fact import FACT, Fact, Retraction, live_facts, unbelieved
from noesium_stream.memory.fold import COLUMNS, MAX_LABEL, fact_of
from noesium_stream.memory.item import MAX_FOUND, MemoryFilter
from noesium_stream.memory.store import MemoryStore

MAX_WHY: Final = 200
"""Most facts of an explanation."""
_LIVE: Final = "INDEXED BY fact_live WHERE live = 1"
"""SQLite would take the index of all facts, and so read the whole history to find what is live of it."""
_LAST: Final = "\U0010ffff"


def live_of_key(store: MemoryStore, scope: str, key: str) -> list[Fact]:
    """The live facts of a key, the latest first; expired ones, too."""
    return store.facts(
        f"{_LIVE} AND scope = ? AND key = ? ORDER BY at_ms DESC, event_id DESC LIMIT 100",
        (scope, key),
    )


def known(store: MemoryStore, ids: Sequence[str]) -> set[str]:
    """Those of these facts that the local file has."""
    if not ids:
        return set()
    with store.reading() as db:
        query = "SELECT id FROM fact WHERE id IN (SELECT value FROM json_each(?))"
        return {row[0] for row in db.execute(query, (orjson.dumps(list(ids)).decode(),))}


def live_of_filter(store: MemoryStore, wanted: MemoryFilter, scopes: Sequence[str]) -> list[Fact]:
    """The live facts of the first keys that fulfil a filter, by scope and key; expired ones, too.

    Raises:
        AgentMemoryError: the limit, or an entry of metadata, is not possible.
    """
    if not 1 <= wanted.limit <= MAX_FOUND:
        raise AgentMemoryError(
            f"A query of memory cannot have the limit {wanted.limit}.", hint=f"Give 1 to {MAX_FOUND}."
        )
    where, values = _conditions(wanted)
    found: dict[tuple[str, str], list[Fact]] = {}
    for scope in scopes:
        if len(found) >= wanted.limit:
            break
        query = f"SELECT {COLUMNS} FROM fact {_LIVE} AND scope = :scope{where} ORDER BY key, at_ms, event_id"
        with store.reading() as db:
            for row in db.execute(query, {**values, "scope": scope}):  # in the order of an index
                place = (scope, row[2])
                if place not in found and len(found) >= wanted.limit:
                    break
                found.setdefault(place, []).append(fact_of(row))
    return [fact for facts in found.values() for fact in reversed(facts)]


def _conditions(wanted: MemoryFilter) -> tuple[str, dict[str, Any]]:
    where = ""
    values: dict[str, Any] = {}
    if wanted.prefix:
        where += " AND key >= :prefix AND key < :behind"
        values |= {"prefix": wanted.prefix, "behind": wanted.prefix + _LAST}
    if wanted.after:
        where += " AND key > :after"
        values["after"] = wanted.after
    if wanted.since_ms is not None:
        where += " AND at_ms >= :since"
        values["since"] = wanted.since_ms
    if wanted.until_ms is not None:
        where += " AND at_ms < :until"
        values["until"] = wanted.until_ms
    if wanted.source is not None:
        where += " AND EXISTS (SELECT 1 FROM source WHERE source = :source AND fact = fact.id)"
        values["source"] = wanted.source
    if wanted.said_by is not None:
        where += " AND more ->> '$.said_by' = :said_by"
        values["said_by"] = wanted.said_by
    for number, (name, value) in enumerate((wanted.metadata or {}).items()):
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        if len(text) > MAX_LABEL or len(name) > MAX_LABEL:
            raise AgentMemoryError(
                f"Memory cannot be found by an entry of metadata of more than {MAX_LABEL} characters: "
                f"{name[:60]!r}.",
            )
        where += (
            f" AND EXISTS (SELECT 1 FROM label WHERE name = :n{number} AND value = :v{number}"
            " AND fact = fact.id)"
        )
        values |= {f"n{number}": name, f"v{number}": text}
    return where, values


def history_of_key(store: MemoryStore, scope: str, key: str, limit: int = 1_000) -> list[Fact]:
    """All facts of a key, the latest first: replaced, deleted and retracted ones, too."""
    return store.facts(
        "WHERE scope = ? AND key = ? ORDER BY at_ms DESC, event_id DESC LIMIT ?",
        (scope, key, limit),
    )


def live_as_of(
    store: MemoryStore, scope: str, at_ms: int, key: str | None = None, *, event_id: str = _LAST
) -> list[Fact]:
    """The facts of a scope that were live at a time, by what was written and retracted until then.

    Args:
        store: caught up.
        scope: a scope.
        at_ms: milliseconds since the epoch.
        key: this key alone; None: all.
        event_id: the last event of this millisecond that counts; without it all of them do.
    """
    until = at_ms, event_id
    facts = store.facts("WHERE scope = ? AND (at_ms, event_id) <= (?, ?)", (scope, *until))
    known = {fact.id for fact in facts}
    for fact in list(facts):  # what they come from decides whether they are believed
        _add_origins(store, fact, known, facts)
    found = live_facts(facts, unbelieved(one for one in retractions(store) if one.order <= until))
    return [fact for fact in found if fact.scope == scope and key in (None, fact.key)]


def _add_origins(store: MemoryStore, fact: Fact, known: set[str], facts: list[Fact]) -> None:
    waiting = [fact]
    while waiting:
        for source in waiting.pop().sources:
            origin = source.removeprefix(FACT)
            if source.startswith(FACT) and origin not in known:
                known.add(origin)
                found = store.facts("WHERE id = ?", (origin,))
                facts += found
                waiting += found


def retractions(store: MemoryStore) -> list[Retraction]:
    """All retractions, by source and time."""
    with store.reading() as db:
        rows = db.execute(
            "SELECT source, at_ms, event_id, author, restored, reason FROM retraction"
            " ORDER BY source, at_ms, event_id"
        )
        return [
            Retraction(source, at_ms, event_id, author, bool(restored), reason)
            for source, at_ms, event_id, author, restored, reason in rows
        ]


class Because(NamedTuple):
    """One line of an explanation.

    Attributes:
        fact: a fact.
        depth: 0 for those asked for; 1 for what they come from or have replaced, and so on.
        role: `is`, `from` (a source of the fact above) or `replaced` (the fact above has its place).
        status: `live`, `replaced`, `retracted` or `deleted`.
    """

    fact: Fact
    depth: int
    role: str
    status: str


def why(store: MemoryStore, scope: str, key: str) -> list[Because]:
    """Why a key has its value: its live facts, what they come from, and what they have replaced.

    At most 200 lines; each fact once, in the order in which it is found, depth first.
    """
    found: list[Because] = []
    seen: set[str] = set()
    starts = live_of_key(store, scope, key) or history_of_key(store, scope, key, 1)
    waiting = [(fact, 0, "is") for fact in reversed(starts)]
    while waiting and len(found) < MAX_WHY:
        fact, depth, role = waiting.pop()
        if fact.id in seen:
            continue
        seen.add(fact.id)
        found.append(Because(fact, depth, role, status_of(store, fact)))
        waiting += [(one, depth + 1, "replaced") for one in _replaced_by(store, fact)]
        origins = [source.removeprefix(FACT) for source in fact.sources if source.startswith(FACT)]
        waiting += [(one, depth + 1, "from") for origin in origins for one in _of_id(store, origin)]
    return found


def status_of(store: MemoryStore, fact: Fact) -> str:
    """`live`, `replaced`, `retracted` or `deleted` (the fact is a deletion)."""
    with store.reading() as db:
        row = db.execute("SELECT live, gone, deleted FROM fact WHERE id = ?", (fact.id,)).fetchone()
    if row is None:
        return "live"
    live, gone, deleted = row
    return "live" if live else "retracted" if gone else "deleted" if deleted else "replaced"


def _replaced_by(store: MemoryStore, fact: Fact) -> list[Fact]:
    named = [one for fact_id in fact.takes for one in _of_id(store, fact_id)]
    if fact.replaces is None and not named:
        return store.facts(
            "WHERE scope = ? AND key = ? AND (at_ms, event_id) < (?, ?)"
            " ORDER BY at_ms DESC, event_id DESC LIMIT 1",
            (fact.scope, fact.key, *fact.order),
        )
    return named


def _of_id(store: MemoryStore, fact_id: str) -> list[Fact]:
    return store.facts("WHERE id = ?", (fact_id,))


def facts_of_ids(store: MemoryStore, ids: Sequence[str]) -> list[Fact]:
    """The facts of these ids, live or not; ids that are unknown are left out."""
    return [fact for one in ids for fact in _of_id(store, one)]


def derived_from(store: MemoryStore, source: str, limit: int = 10_000) -> list[Fact]:
    """The live facts that come from a source, directly or through others: what its retraction takes away."""
    found: dict[str, Fact] = {}
    waiting = [source]
    while waiting and len(found) < limit:
        one = waiting.pop()
        facts = store.facts("JOIN source ON source.fact = fact.id WHERE source.source = ?", (one,))
        facts += _of_id(store, one.removeprefix(FACT)) if one.startswith(FACT) else []
        for fact in facts:
            if fact.id not in found:
                found[fact.id] = fact
                waiting.append(FACT + fact.id)
    return [fact for fact in found.values() if status_of(store, fact) == "live"]


def is_source(store: MemoryStore, source: str) -> bool:
    """Whether a fact comes from a source, or is it; live or not."""
    if source.startswith(FACT) and _of_id(store, source.removeprefix(FACT)):
        return True
    with store.reading() as db:
        row = db.execute("SELECT 1 FROM source WHERE source = ? LIMIT 1", (source,)).fetchone()
    return row is not None


def scopes_of(store: MemoryStore, key: str | None = None) -> list[str]:
    """The scopes that have facts, live or not; with a key, those that have it."""
    where, values = ("", ()) if key is None else (" WHERE key = ?", (key,))
    with store.reading() as db:
        return [
            row[0] for row in db.execute(f"SELECT DISTINCT scope FROM fact{where} ORDER BY scope", values)
        ]
