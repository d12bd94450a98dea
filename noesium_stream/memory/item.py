"""What is read from memory: `MemoryItem`, and what may be asked for: `MemoryFilter` (RFC-1001 §9.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noesium_stream.memory.fact import Fact

MAX_FOUND: Final = 1_000
"""Most items of one query."""
MAX_CONTRADICTIONS: Final = 20


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """What is remembered under a key.

    Attributes:
        key: the key.
        value: the value of the latest live fact; any JSON value.
        scope: who remembers it.
        id: the fact's id, by which another may replace it or come from it.
        at_ms: when it was written, in milliseconds since the epoch.
        by: the agent or program that wrote it.
        run_id: the run that wrote it; None: a program.
        said_by: who said it.
        sources: what it comes from.
        metadata: what its writer has added.
        valid_from_ms: since when it held.
        valid_until_ms: until when it held.
        expires_ms: from when on it is not shown.
        contradictions: other live facts of the key, later ones first, at most 20: nobody has decided yet.
        about: users beside that of its scope whom it is about.
    """

    key: str
    value: Any
    scope: str
    id: str
    at_ms: int
    by: str
    run_id: str | None = None
    said_by: str | None = None
    sources: tuple[str, ...] = ()
    metadata: Mapping[str, Any] | None = None
    valid_from_ms: int | None = None
    valid_until_ms: int | None = None
    expires_ms: int | None = None
    contradictions: tuple[MemoryItem, ...] = ()
    about: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The item as a JSON object, without what is not known."""
        found: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "contradictions":
                value = [one.to_json() for one in value]
            elif name in ("sources", "about"):
                value = list(value)
            if name == "value" or value not in (None, []):
                found[name] = value
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> MemoryItem:
        """The item of `to_json`."""
        kept = dict(found)
        kept["sources"] = tuple(kept.get("sources") or ())
        kept["about"] = tuple(kept.get("about") or ())
        kept["contradictions"] = tuple(cls.from_json(one) for one in kept.get("contradictions") or ())
        return cls(**kept)


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """Which items are asked for; what is not given does not matter.

    Attributes:
        scopes: their scopes; None: those that the reader uses.
        prefix: how their keys begin.
        metadata: entries of their metadata: short texts, numbers and truth values.
        source: a source that they come from directly.
        said_by: who said them.
        since_ms: written then or later.
        until_ms: written before.
        after: keys after this one: the last of the page before.
        limit: most items, up to 1,000.
    """

    scopes: Sequence[str] | None = None
    prefix: str = ""
    metadata: Mapping[str, str | int | float | bool | None] | None = None
    source: str | None = None
    said_by: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    after: str = ""
    limit: int = 100


def items_of(facts: Sequence[Fact]) -> list[MemoryItem]:
    """The items of live facts, in the order of their first ones; facts of one key are its contradictions."""
    by_key: dict[tuple[str, str], list[Fact]] = {}
    for fact in facts:
        by_key.setdefault((fact.scope, fact.key), []).append(fact)
    found = []
    for group in by_key.values():
        first, *others = sorted(group, key=lambda fact: fact.order, reverse=True)
        found.append(_item(first, tuple(_item(one) for one in others[:MAX_CONTRADICTIONS])))
    return found


def _item(fact: Fact, contradictions: tuple[MemoryItem, ...] = ()) -> MemoryItem:
    return MemoryItem(
        key=fact.key,
        value=fact.value,
        scope=fact.scope,
        id=fact.id,
        at_ms=fact.at_ms,
        by=fact.agent_id,
        run_id=fact.run_id,
        said_by=fact.said_by,
        sources=fact.sources,
        metadata=fact.metadata,
        valid_from_ms=fact.valid_from_ms,
        valid_until_ms=fact.valid_until_ms,
        expires_ms=fact.expires_ms,
        contradictions=contradictions,
        about=fact.about,
    )
