"""A conversation as extractors read it, and what they find in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

Kind = Literal["fact", "preference", "event"]
KINDS: Final[tuple[Kind, ...]] = ("fact", "preference", "event")
MAX_NAME: Final = 100
MAX_VALUE: Final = 1_000
"""Characters of the name and of the value of what is extracted."""

_NAME: Final = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation.

    Attributes:
        source: names it, by which what it says can be retracted: `event:ID`, or any other text of 1 to 1,024
            characters; the same whenever the conversation is read.
        text: what was said.
        role: `user` or `assistant`.
        said_by: the person who said it.
        at_ms: when, in milliseconds since the epoch; None: it is not known.
    """

    source: str
    text: str
    role: Literal["user", "assistant"] = "user"
    said_by: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Extracted:
    """Something to remember.

    Attributes:
        kind: `fact`, `preference` or `event`.
        name: of what it is about, in lower-case words joined by `-` and `.`: a later one of the same kind and
            name takes its place.
        value: what is remembered.
        turns: the turns that say it, from 0, in order.
    """

    kind: Kind
    name: str
    value: str
    turns: tuple[int, ...]

    @property
    def key(self) -> str:
        """The key of memory: `preference.coffee`. What is extracted has no other keys than these."""
        return f"{self.kind}.{self.name}"

    def is_possible(self, turns: int) -> bool:
        """Whether name, value and turns have their forms, in a conversation of so many turns."""
        return (
            self.kind in KINDS
            and len(self.name) <= MAX_NAME
            and _NAME.fullmatch(self.name) is not None
            and 0 < len(self.value) <= MAX_VALUE
            and len(self.turns) > 0
            and all(0 <= one < turns for one in self.turns)
        )


class MemoryExtractor(Protocol):
    """Finds what is to be remembered of a conversation."""

    @property
    def name(self) -> str:
        """Its name and version: another one reads a conversation again."""

    async def extract(self, turns: Sequence[Turn], known: Sequence[str], first: int) -> Sequence[Extracted]:
        """What the turns from `first` on say; those before are there to be understood.

        Args:
            turns: the conversation, or its last part.
            known: keys that are remembered already, so that a correction finds its key.
            first: the first new turn.
        """
