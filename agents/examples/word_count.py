"""Counts words in many texts at once: one node for each text (map), one for all (reduce).

    noesium run agents.examples.word_count:graph --input '{"texts": ["a rose is a rose", "is it a rose"]}'

Each text is a step of its own: a crash repeats the texts that were not counted yet, and no other.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send


class Texts(TypedDict, total=False):
    """Texts, the counts of each, and their sum."""

    texts: list[str]
    counts: Annotated[list[dict[str, int]], operator.add]
    words: dict[str, int]


class Text(TypedDict):
    """What one node for one text is given."""

    text: str


def spread(state: Texts) -> list[Send]:
    """Send each text to a node of its own."""
    return [Send("count", {"text": text}) for text in state["texts"]]


def count(state: Text) -> Texts:
    """Count the words of one text."""
    return {"counts": [dict(Counter(state["text"].lower().split()))]}


def add_up(state: Texts) -> Texts:
    """Add up all counts, the most frequent word first."""
    total: Counter[str] = Counter()
    for counts in state["counts"]:
        total.update(counts)
    return {"words": dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))}


builder = StateGraph(Texts)
builder.add_node("count", count)
builder.add_node("add_up", add_up)
builder.add_conditional_edges(START, spread, ["count"])
builder.add_edge("count", "add_up")
builder.add_edge("add_up", END)
graph = builder.compile()
