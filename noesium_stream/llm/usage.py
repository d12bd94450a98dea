"""How many tokens a call took: what the provider says, if it can be true, else an estimate.

A provider's numbers are hostile input: they decide about money. What is no whole number, or outside what the
texts allow, is replaced by the estimate, which says that it is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

MAX_TOKENS: Final = 100_000_000
"""More than any call has."""

_BYTES_PER_TOKEN: Final = 3
_LONGEST_TOKEN: Final = 128
_OVERHEAD: Final = 16
_SLACK: Final = 65_536
"""Tokens of a prompt that its text does not show: images, templates, a provider's own instructions."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call.

    Attributes:
        input_tokens: of the prompt, with the cached ones.
        output_tokens: of the answer, with those of its reasoning.
        cached_tokens: those of the prompt that the provider had in a cache; None: it did not say.
        estimated: whether the numbers are an estimate.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    estimated: bool = False

    @property
    def total(self) -> int:
        """All tokens."""
        return self.input_tokens + self.output_tokens

    def to_dict(self) -> dict[str, Any]:
        """As recorded."""
        return asdict(self)


def estimated_tokens(value: Any) -> int:
    """An estimate, rather too high, of the tokens of a text or of messages."""
    if value is None:
        return 0
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    pieces = len(value) if isinstance(value, list) else 1
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN) + _OVERHEAD * pieces


def checked_usage(
    claimed: Any, prompt: Any, answer: Any, max_output_tokens: int | None = None, *, hidden: bool = True
) -> Usage:
    """What a provider claims, where it can be true; else an estimate.

    Args:
        claimed: `{"input_tokens", "output_tokens", "cached_tokens"}`, or anything else.
        prompt: a text or messages.
        answer: a text, and whatever else the model wrote.
        max_output_tokens: the most that it was allowed to write; None: no limit.
        hidden: whether a model may have written what the answer does not show (reasoning).
    """
    given = claimed if isinstance(claimed, Mapping) else {}
    asked, made = estimated_tokens(prompt), estimated_tokens(answer)
    most = max_output_tokens or (MAX_TOKENS if hidden else made * _BYTES_PER_TOKEN + _OVERHEAD)
    input_tokens = _within(given.get("input_tokens"), asked, asked * _BYTES_PER_TOKEN + _SLACK)
    output_tokens = _within(given.get("output_tokens"), made, most)
    estimated = input_tokens is None or output_tokens is None
    input_tokens = asked if input_tokens is None else input_tokens
    cached = _within(given.get("cached_tokens"), 0, input_tokens)
    return Usage(input_tokens, made if output_tokens is None else output_tokens, cached, estimated)


def _within(claimed: Any, estimate: int, most: int) -> int | None:
    """A claimed number, if it is one and can be true."""
    if isinstance(claimed, bool) or not isinstance(claimed, int):
        return None
    least = estimate * _BYTES_PER_TOKEN // _LONGEST_TOKEN
    return claimed if least <= claimed <= min(most, MAX_TOKENS) else None
