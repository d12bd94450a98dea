"""Stems of a text, and how far it speaks of what a question asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.documents.words import plain_stems, stems

_IN_NAME = 0.85


class Text:
    """Stems of a text, for finding forms in it."""

    __slots__ = ("_joined", "_known", "_order", "_plain")

    def __init__(self, text: str) -> None:
        self._order = stems(text)
        self._plain = plain_stems(text)
        self._known = self._plain.union(self._order)
        self._joined = " " + " ".join(self._order) + " "

    def has(self, sequence: Sequence[str]) -> float:
        """1 if `sequence` is there, less if only as a part of a longer name, 0 if not."""
        if len(sequence) == 1:
            return 1.0 if sequence[0] in self._plain else _IN_NAME if sequence[0] in self._known else 0.0
        return float(f" {' '.join(sequence)} " in self._joined)

    def has_apart(self, sequence: Sequence[str], apart: int) -> bool:
        """Whether the two stems of `sequence` stand in order with at most `apart` words between them."""
        first, second = sequence
        return any(
            second in self._order[at + 1 : at + 2 + apart]
            for at, word in enumerate(self._order)
            if word == first
        )

    def ends_with(self, sequence: Sequence[str]) -> bool:
        """Whether the text ends with the last of `sequence` and has the others before it, in order."""
        if not self._order or self._order[-1] != sequence[-1]:
            return False
        words = iter(self._order)
        return all(wanted in words for wanted in sequence)

    def credit(self, term: Mapping[str, Any]) -> float:
        """How far this text speaks of `term`; single parts of a compound add up."""
        best = parts = 0.0
        for form in term["forms"]:
            if "apart" in form:
                share = form["credit"] * self.has_apart(form["stems"], form["apart"])
            else:
                share = form["credit"] * self.has(form["stems"])
            if form["credit"] >= 0.5:
                best = max(best, share)
            else:
                parts += share
        return max(best, min(parts, 0.5))

    def place(self, sequence: Sequence[str]) -> int:
        """Where `sequence` begins, by the number of its word; -1 if nowhere."""
        return self._order.index(sequence[0]) if sequence and sequence[0] in self._order else -1

    def __len__(self) -> int:
        return len(self._order)
