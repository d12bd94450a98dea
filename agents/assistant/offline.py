"""Answers without a model: from what the person has said, from documents, and by tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents.assistant.requests import Explain, Recall, Request, Unclear, requests_of
from agents.assistant.sentences import (
    Ask,
    Forget,
    Remember,
    UseTool,
    content_words,
    request_of,
    share,
    slug,
)
from noesium_stream.agent import Dialogue, Reply, UserMessage
from noesium_stream.clock import to_datetime
from noesium_stream.event.rules.labels import shortened
from noesium_stream.kernel import current_step
from noesium_stream.memory import MemoryFilter, MemoryItem

SEARCHED: Final = 10
"""Facts that a question looks at."""
_SHOWN: Final = 3
_ENOUGH: Final = 0.5
"""The share of a question's words that a fact or a passage must have."""
_QUOTE: Final = 500
_MAX_SENTENCE: Final = 500
_MAX_LISTED: Final = 50
_MAX_VALUE: Final = 200
_MAX_UNCLEAR: Final = 80

_ABOUT: Final = {
    "abilities": (
        "I remember what you tell me, and find it again: remember that …, my … is …, I live in …, forget … "
        "I write TEXT to FILE, read FILE and list files. /help lists the commands of this terminal."
    ),
    "reminders": (
        "I cannot remind you: I speak only when I am spoken to. noesium schedule starts a run at a time of "
        "your choice: noesium schedule --help."
    ),
    "forgetting": (
        "I forget one thing at a time, and have forgotten nothing now: say forget and its name, as in forget "
        "my name, or /forget KEY. What do you know about me? lists all. On a command line: noesium memory "
        "forget KEY --scope user:{user}, and noesium erase user:{user} for the person as a whole."
    ),
}


@dataclass(frozen=True, slots=True)
class Offline:
    """Answers of the assistant where no model is configured.

    Attributes:
        has_documents: whether it may look into documents.
    """

    has_documents: bool

    async def answer(self, message: UserMessage, dialogue: Dialogue) -> Reply:
        """The answer to a message; raises what memory and tools raise."""
        replies = [
            await self._answer_to(request, message, dialogue) for request in self._requests(message.text)
        ]
        sources = [source for reply in replies for source in reply.sources]
        return Reply("\n".join(reply.text for reply in replies), sources)

    def _requests(self, text: str) -> Sequence[Request]:
        return requests_of(text)

    async def _answer_to(self, request: Request, message: UserMessage, dialogue: Dialogue) -> Reply:
        match request:
            case Remember():
                return await self._remember(request, message, dialogue)
            case Forget():
                return await self._forget(request, dialogue)
            case UseTool():
                return await self._use(request)
            case Recall():
                return await self._list(dialogue)
            case Explain():
                return Reply(_ABOUT[request.about].format(user=dialogue.user))
            case Unclear():
                said = shortened(request.text, _MAX_UNCLEAR)
                unknown = f"I do not understand “{said}” without a model. /help says what I can do."
                return await self._find(Ask(request.text), dialogue, unknown)
            case Ask():
                return await self._find(request, dialogue, self._unknown)

    @property
    def _unknown(self) -> str:
        where = "neither from you nor from the documents" if self.has_documents else "yet"
        return f"I do not know that {where}. Tell me: remember that …"

    async def _list(self, dialogue: Dialogue) -> Reply:
        items = await dialogue.user_memory.query(MemoryFilter(limit=_MAX_LISTED + 1))
        if not items:
            return Reply("I remember nothing of you yet. Tell me: remember that …")
        lines = [f"{item.key} = {_value(item.value)}" for item in items[:_MAX_LISTED]]
        if len(items) > _MAX_LISTED:
            lines.append(f"That is the first {_MAX_LISTED}; /memory WORDS finds others.")
        return Reply("\n".join(lines), [f"memory:{item.id}" for item in items[:_MAX_LISTED]])

    async def _remember(self, fact: Remember, message: UserMessage, dialogue: Dialogue) -> Reply:
        memory = dialogue.user_memory
        before = await memory.durable.recall(fact.key)
        metadata = {"told": fact.told[:_MAX_SENTENCE], "said": message.text[:_MAX_SENTENCE]}
        fact_id = await memory.write(fact.key, fact.value, metadata)
        instead = ""
        if before is not None and before.value != fact.value:
            instead = f" Before that it was {before.value}."
        return Reply(f"I will remember: {fact.told}{instead}", [f"memory:{fact_id}"])

    async def _forget(self, request: Forget, dialogue: Dialogue) -> Reply:
        memory = dialogue.user_memory
        key = slug(request.what.removeprefix("my "))
        found = await memory.durable.recall(key)
        if found is None:
            known = await self._known(Ask(request.what), dialogue)
            found = known[0] if known else None
        if found is None:
            return Reply("I remember nothing like that.")
        await memory.delete(found.key, reason="asked for in a conversation")
        return Reply(f"I have forgotten: {told(found)}", [f"memory:{found.id}"])

    async def _use(self, request: UseTool) -> Reply:
        result = await current_step().tool(request.name, **request.arguments)
        return Reply(_shown(request, result), [f"tool:{request.name}"])

    async def _find(self, question: Ask, dialogue: Dialogue, unknown: str) -> Reply:
        known = await self._known(question, dialogue)
        if known:
            lines = [f"{told(item)} {reason(item, dialogue.user)}" for item in known[:_SHOWN]]
            return Reply("\n".join(lines), [f"memory:{item.id}" for item in known[:_SHOWN]])
        passages = await self._passages(question.text) if self.has_documents else []
        if passages:
            quotes = [f"{_cut(one['text'])}\n  ({_place(one)})" for one in passages]
            return Reply("\n\n".join(quotes), [f"document:{_place(one)}" for one in passages])
        return Reply(unknown)

    async def _known(self, question: Ask, dialogue: Dialogue) -> list[MemoryItem]:
        """What is remembered about a question, best first."""
        memory = dialogue.user_memory
        if question.key is not None:
            item = await memory.durable.recall(question.key)
            if item is not None:
                return [item, *item.contradictions]
        words = content_words(question.text)
        if not words:
            return []
        results = await memory.search(question.text, SEARCHED)
        shares = [(share(words, f"{_words(item.key)} {told(item)}"), item) for item, _ in results]
        good = [(part, item) for part, item in shares if part >= _ENOUGH]
        return [item for _, item in sorted(good, key=lambda one: -one[0])]

    async def _passages(self, question: str) -> list[dict[str, Any]]:
        words = content_words(question)
        found = await current_step().tool("search_documents", query=question[:1_000], most=4)
        return [one for one in found if share(words, f"{one['heading']} {one['text']}") >= _ENOUGH][:2]


class FirstOffline(Offline):
    """Answers of version 1.0.0, which takes each message for one request."""

    def _requests(self, text: str) -> Sequence[Request]:
        return [request_of(text)]


def told(item: MemoryItem) -> str:
    """A fact as a sentence."""
    sentence = (item.metadata or {}).get("told")
    return sentence if isinstance(sentence, str) else f"{_words(item.key)}: {item.value}"


def reason(item: MemoryItem, user: str) -> str:
    """Why a fact is known: who said it, when, in which words."""
    moment = f"{to_datetime(item.at_ms):%Y-%m-%d %H:%M}"
    if item.said_by is None:
        return f"({item.by} has noted it, {moment} UTC)"
    who = "you" if item.said_by == user else item.said_by
    said = (item.metadata or {}).get("said")
    words = f": “{said}”" if isinstance(said, str) else ""
    return f"({who} told me, {moment} UTC{words})"


def _value(value: object) -> str:
    return shortened(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _MAX_VALUE)


def _words(key: str) -> str:
    return key.replace("_", " ").replace(".", " ")


def _cut(text: str) -> str:
    return text if len(text) <= _QUOTE else f"{text[:_QUOTE]}…"


def _place(passage: Mapping[str, Any]) -> str:
    if passage["first_line"] is None:
        return f"{passage['path']}#page {passage['page']}"
    return f"{passage['path']}#{passage['first_line']}-{passage['last_line']}"


def _shown(request: UseTool, result: Any) -> str:
    if request.name == "write_file":
        return f"I have written {result['path']} ({result['size']} bytes)."
    if request.name == "read_file":
        return str(result["text"]).rstrip("\n") or f"{result['path']} is empty."
    files = result["files"]
    return "\n".join(f"{one['path']}  {one['size']} bytes" for one in files) or "There are no files yet."
