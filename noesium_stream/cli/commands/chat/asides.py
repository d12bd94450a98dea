"""What a person asks the terminal and not the agent: `/memory`, `/why`, `/history`, `/help`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from noesium_stream.cli.output import json_text, note, out, shorten
from noesium_stream.client.conversation import Conversation, ConversationTurn
from noesium_stream.clock import to_rfc3339
from noesium_stream.escapes import escaped
from noesium_stream.memory import MemoryFilter, MemoryManager
from noesium_stream.memory.fact import FACT, Fact
from noesium_stream.memory.queries import Because, facts_of_ids, why

HELP: Final = (
    ("/memory [WORDS]", "what is remembered of you; with words, what fits them best"),
    ("/why ID|KEY|WORDS", "where a memory, or a sentence of an answer, comes from"),
    ("/forget KEY", "forget what is remembered under a key"),
    ("/undo", "take your last message back: its answer, and all that was remembered because of it"),
    ("/history", "the whole conversation; what was taken back is marked"),
    ("/quit", "leave; the conversation stays open, and goes on with --resume"),
    ("/close", "end the conversation for good"),
    ("/help", "this list"),
)
_SHOWN: Final = 50
_VALUE: Final = 200
_EVENT: Final = "event:"


def print_help() -> None:
    """Print what can be typed."""
    for command, text in HELP:
        out(f"{command:<18} {text}")


async def print_memory(memory: MemoryManager, words: str) -> None:
    """Print what is remembered of the user."""
    if words:
        items = [result.item for result in await memory.search(words, 10)]
    else:
        items = await memory.query(MemoryFilter(limit=_SHOWN))
    for item in items:
        who = item.said_by or item.by
        out(escaped(f"{item.key} = {_value(item.value)}  ({who}, {to_rfc3339(item.at_ms)}, {item.id})"))
        for other in item.contradictions:
            out(escaped(f"  contradicted by {_value(other.value)}  ({other.said_by or other.by})"))
    if not items:
        note("Nothing is remembered." if not words else "Nothing that is remembered fits these words.")


async def forget(memory: MemoryManager, key: str) -> None:
    """Forget a key."""
    if not key:
        note("Say what: /forget KEY; /memory lists the keys.")
    elif await memory.durable.recall(key) is None:
        note(f"Nothing is remembered under {escaped(key)}.")
    else:
        await memory.delete(key, reason="/forget")
        note(f"{escaped(key)} is forgotten.")


async def print_why(memory: MemoryManager, conversation: Conversation, what: str) -> None:
    """Print where a memory comes from, or a sentence of this conversation: by id, by key, or by words."""
    if not what:
        note("Say what: /why ID, /why KEY, or /why some words of an answer.")
        return
    turns = {turn.message_id: turn for turn in conversation.view.turns}
    await memory.durable.store.catch_up(memory.durable.log)
    if _print_facts(memory, _facts(memory, what), turns):
        return
    turn = _turn_that_says(list(turns.values()), what)
    if turn is not None:
        _print_turn(memory, turn, turns)
        return
    found = [result.item.id for result in await memory.search(what, 3)]
    if not _print_facts(memory, facts_of_ids(memory.durable.store, found), turns):
        note("Nothing that is remembered, and no answer of this conversation, has these words.")


def print_history(
    turns: Sequence[ConversationTurn], limit: int | None = None, show: Callable[[str], None] = out
) -> None:
    """Print turns: all of them, or the last ones."""
    for turn in turns if limit is None else turns[-limit:]:
        mark = "  (taken back)" if turn.undone else ""
        show(escaped(f"{turn.number}> {shorten(turn.said, 1_000)}{mark}"))
        for line in turn.answer.splitlines():
            show(escaped(f"   {line}"))


def _facts(memory: MemoryManager, what: str) -> list[Fact]:
    """The facts of an id, or of a key."""
    store, scope = memory.durable.store, memory.durable.scope
    facts = facts_of_ids(store, [what.removeprefix(FACT)])
    return facts or [line.fact for line in why(store, scope, what) if line.role == "is"]


def _print_facts(
    memory: MemoryManager, facts: Sequence[Fact], turns: dict[str, ConversationTurn], indent: str = ""
) -> bool:
    seen: set[str] = set()
    for fact in facts:
        for line in why(memory.durable.store, fact.scope, fact.key):
            if line.fact.id not in seen and (line.depth or line.fact.id == fact.id):
                seen.add(line.fact.id)
                _print_line(line, turns, indent)
        if fact.id not in seen:
            seen.add(fact.id)
            _print_line(Because(fact, 0, "is", "replaced"), turns, indent)
    return bool(facts)


def _print_line(line: Because, turns: dict[str, ConversationTurn], indent: str) -> None:
    fact = line.fact
    role = {"is": "", "from": "from ", "replaced": "it replaced "}[line.role]
    state = "" if line.status == "live" or line.role == "replaced" else f" ({line.status})"
    value = "forgotten" if fact.deleted else _value(fact.value)
    said = f"said by {fact.said_by}" if fact.said_by else f"written by {fact.agent_id}"
    pad = indent + "  " * line.depth
    out(escaped(f"{pad}{role}{fact.key} = {value}{state}  {said}, {to_rfc3339(fact.at_ms)}"))
    words = (fact.metadata or {}).get("said")
    for source in fact.sources:
        turn = turns.get(source.removeprefix(_EVENT))
        if turn is not None:
            out(escaped(f"{pad}  in turn {turn.number} of this conversation: {shorten(turn.said, _VALUE)}"))
            out(escaped(f"{pad}  {source}"))
        elif source.startswith(_EVENT):
            quoted = f": {shorten(words, _VALUE)}" if isinstance(words, str) else ""
            run = f" of conversation {fact.run_id}" if fact.run_id else ""
            out(escaped(f"{pad}  {source}{run}{quoted}"))
        else:
            out(escaped(f"{pad}  from {source}"))


def _turn_that_says(turns: Sequence[ConversationTurn], words: str) -> ConversationTurn | None:
    """The last turn whose answer has the words; else the last one whose message has them."""
    wanted = _plain(words)
    live = [turn for turn in reversed(turns) if not turn.undone]
    says = [turn for turn in live if wanted in _plain(turn.answer)]
    return next(iter(says or [turn for turn in live if wanted in _plain(turn.said)]), None)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _print_turn(memory: MemoryManager, turn: ConversationTurn, turns: dict[str, ConversationTurn]) -> None:
    moment = to_rfc3339(turn.said_ms)
    out(escaped(f"turn {turn.number}, {moment}, to {turn.said_by}: {shorten(turn.said, _VALUE)}"))
    for source in turn.sources:
        facts = _facts(memory, source) if source.startswith(FACT) else []
        if not _print_facts(memory, facts, turns, "  "):
            out(escaped(f"  from {source}"))
    if not turn.sources:
        out("  from nothing but the message")


def _value(value: object) -> str:
    return shorten(value if isinstance(value, str) else json_text(value), _VALUE)
