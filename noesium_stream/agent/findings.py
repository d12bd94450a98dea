"""`Findings`: what an agent has found, remembered across runs, with the passages that it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from noesium_stream.clock import to_datetime
from noesium_stream.memory import MemoryManager

PREFIX: Final = "finding."
MAX_ANSWER: Final = 4_000
MAX_CITATIONS: Final = 50
"""Characters of an answer, and citations, that are remembered."""
_MAX_PATH: Final = 900


@dataclass(frozen=True, slots=True)
class Findings:
    """Answers by question, in the memory of an agent.

    A finding comes from its passages, `document:PATH#FIRST-LAST`, and from their documents, `document:PATH`,
    or from pages, `web:URL`: when one of these is retracted, the finding is gone.
    """

    memory: MemoryManager

    async def recall(self, question: str, corpus: str | None = None) -> dict[str, Any] | None:
        """What was answered to a question before: `{"answer", "citations", "id", "since"}`; None: nothing.

        Args:
            question: letters' case and spaces do not matter.
            corpus: in which documents.
        """
        item = await self.memory.durable.recall(key_of(question, corpus))
        if item is None or not isinstance(item.value, dict):
            return None
        answer, citations = item.value.get("answer"), item.value.get("citations")
        if not isinstance(answer, str) or not isinstance(citations, list):
            return None
        since = to_datetime(item.at_ms).date().isoformat()
        return {"answer": answer, "citations": citations, "id": item.id, "since": since}

    async def remember(
        self,
        question: str,
        answer: str,
        citations: Sequence[Mapping[str, Any]],
        corpus: str | None = None,
    ) -> str:
        """Remember an answer; return the fact's id. It takes the place of what was answered before.

        Args:
            question: what was asked.
            answer: what was found.
            citations: the passages, each with its `path` and, if known, `start_line` and `end_line`.
            corpus: in which documents.
        """
        named = places_of(citations)
        documents = [place.partition("#")[0] for place in named]
        return await self.memory.write(
            key_of(question, corpus),
            {"question": question[:MAX_ANSWER], "answer": answer[:MAX_ANSWER], "citations": named},
            {"kind": "finding"},
            sources=list(dict.fromkeys(map(_source, (*documents, *named)))),
        )


def key_of(question: str, corpus: str | None) -> str:
    """The key of a question in a corpus."""
    plain = " ".join(question.lower().split())
    return PREFIX + sha256(f"{corpus or ''}\n{plain}".encode()).hexdigest()[:24]


def places_of(citations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Citations as a finding keeps them: `PATH#FIRST-LAST`, or `PATH`, `MAX_CITATIONS` at most."""
    return [_place(one) for one in citations[:MAX_CITATIONS] if isinstance(one.get("path"), str)]


def _source(place: str) -> str:
    is_page = place.lower().startswith(("http://", "https://"))
    return f"web:{place}" if is_page else f"document:{place}"


def _place(citation: Mapping[str, Any]) -> str:
    first, last = citation.get("start_line"), citation.get("end_line")
    path = str(citation["path"])[-_MAX_PATH:].replace("#", "%23")
    return f"{path}#{first}-{last}" if type(first) is int and type(last) is int else path
