"""`ingest`: what a conversation says becomes facts of memory, once.

How far a conversation was read is a fact of memory itself, under `extraction.ID`: the number of turns, and a
hash of them. So a conversation that is ingested again writes nothing and asks no model; one that has grown is
read from its first new turn on. In a node facts and mark commit with the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import orjson

from noesium_stream.clock import to_datetime
from noesium_stream.memory import queries
from noesium_stream.memory.durable import DurableMemory, as_effect
from noesium_stream.memory.extraction.turn import KINDS, Extracted, MemoryExtractor, Turn
from noesium_stream.memory.item import MemoryFilter
from noesium_stream.memory.manager import MemoryManager
from noesium_stream.memory.writing import checked_key, source_text

MARK: Final = "extraction."
KNOWN: Final = "memory.known"
CONTEXT: Final = 20
"""Turns before the first new one that an extractor is shown."""
MAX_KNOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a conversation.

    Attributes:
        written: the facts' ids, in the order of what was said.
        turns: how many turns were new.
        unchanged: what was remembered like this before.
        outdated: what was said before something that is remembered of the same key.
    """

    written: tuple[str, ...] = ()
    turns: int = 0
    unchanged: int = 0
    outdated: int = 0


async def ingest(
    memory: DurableMemory | MemoryManager,
    conversation: str,
    turns: Sequence[Turn],
    extractor: MemoryExtractor,
) -> Ingested:
    """Remember what the new turns of a conversation say; each fact's sources are the turns that say it.

    A later statement takes the place of an earlier one of its key. The conversation, `conversation:ID`, is a
    source of all of them, too.

    Args:
        memory: of the user, or of whom the conversation is about: the scope in which it is remembered.
        conversation: its id: 1 to 500 characters.
        turns: all of its turns, in order, from the first one on.
        extractor: finds what is to be remembered.

    Raises:
        AgentMemoryError: the id, or the source of a turn, is not possible.
        Exception: as `DurableMemory.write` and `recall`, or the extractor's own.
    """
    durable = memory.durable if isinstance(memory, MemoryManager) else memory
    place = checked_key(f"{MARK}{conversation}")
    for turn in turns:
        source_text(turn.source)
    mark = await durable.read(place)
    first = _read_before(mark, turns, extractor.name)
    if first == len(turns):
        return Ingested()
    from_turn = max(0, first - CONTEXT)
    shown = turns[from_turn:]
    found = await extractor.extract(shown, await _known_keys(durable), first - from_turn)
    possible = [one for one in found if one.is_possible(len(shown))]
    result = await _written(durable, f"conversation:{conversation}", shown, possible, len(turns) - first)
    await durable.write(
        place, {"turns": len(turns), "hash": _hash(turns), "by": extractor.name}, {"kind": "extraction"}
    )
    return result


def _read_before(mark: Any, turns: Sequence[Turn], by: str) -> int:
    """How many of the first turns were read: those of the mark, if they are still the same."""
    count = mark.get("turns") if isinstance(mark, dict) and mark.get("by") == by else None
    if not isinstance(count, int) or not 0 < count <= len(turns) or mark["hash"] != _hash(turns[:count]):
        return 0
    return count


def _hash(turns: Sequence[Turn]) -> str:
    told = [[turn.source, turn.role, turn.text] for turn in turns]
    return sha256(orjson.dumps(told)).hexdigest()


async def _known_keys(durable: DurableMemory) -> list[str]:
    items = [
        item
        for kind in KINDS
        for item in await durable.query(MemoryFilter(prefix=f"{kind}.", limit=MAX_KNOWN))
    ]
    return [item.key for item in items]


async def _written(
    durable: DurableMemory,
    conversation: str,
    turns: Sequence[Turn],
    found: Sequence[Extracted],
    new: int,
) -> Ingested:
    recorded = await _before(durable, sorted({one.key for one in found}))
    told = {key: [*one["told"]] for key, one in recorded.items()}
    since = {key: one["since"] for key, one in recorded.items()}
    written: list[str] = []
    unchanged = outdated = 0
    for one in found:
        said = [turns[at] for at in one.turns]
        sources = [turn.source for turn in said[-50:]]
        at_ms = said[-1].at_ms
        if [one.value, sources] in told[one.key]:
            unchanged += 1
            continue
        if at_ms is not None and since[one.key] is not None and since[one.key] > at_ms:
            outdated += 1
            continue
        fact = await durable.write(
            one.key,
            one.value,
            {"kind": one.kind},
            sources=[*sources, conversation],
            said_by=said[-1].said_by,
            valid_from=None if at_ms is None else to_datetime(at_ms),
        )
        told[one.key].append([one.value, sources])
        since[one.key] = at_ms
        written.append(fact)
    return Ingested(tuple(written), new, unchanged, outdated)


async def _before(durable: DurableMemory, keys: list[str]) -> dict[str, dict[str, Any]]:
    """By key: what was ever told of it, with its sources, and since when the live fact holds."""

    async def find() -> dict[str, dict[str, Any]]:
        await durable.store.catch_up(durable.log)
        found = {}
        for key in keys:
            facts = queries.history_of_key(durable.store, durable.scope, key, 100)
            live = queries.live_of_key(durable.store, durable.scope, key)
            found[key] = {
                "told": [[fact.value, _turns_of(fact.sources)] for fact in facts],
                "since": live[0].valid_from_ms if live else None,
            }
        return found

    known: dict[str, dict[str, Any]] = await as_effect(KNOWN, find, {"scope": durable.scope, "keys": keys})
    return known


def _turns_of(sources: Sequence[str]) -> list[str]:
    return [source for source in sources if not source.startswith(("conversation:", "label:"))]
