"""Answers of models that are given again instead of calling once more.

A look-up is a part of the call's effect: whether it found something is recorded, so that a replay does not
look, and `model.completed` names the call that it repeats. A repeated answer costs nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from noesium_stream.clock import Clock, SystemClock
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.llm.base import Write
from noesium_stream.llm.usage import Usage

_NOTHING: Final = Usage(0, 0).to_dict()


class CachedAnswer(NamedTuple):
    """An answer, as it is recorded, and the call that it was given to."""

    call_id: str
    result: Mapping[str, Any]


class AnswerCache(Protocol):
    """Where answers are kept; an error of it fails the call."""

    async def get(self, key: str) -> CachedAnswer | None:
        """The answer of this key; None: there is none."""

    async def put(self, key: str, answer: CachedAnswer) -> None:
        """Keep an answer."""


class MemoryCache:
    """Answers in the memory of this process; the one that nobody has asked for longest goes first.

    Args:
        most: how many answers.
        ttl: how long an answer is given again; None: as long as it is there.
        clock: measures `ttl`.

    Raises:
        ConfigError: `most` is below 1, or `ttl` is not above zero.
    """

    def __init__(self, most: int = 1_000, *, ttl: Duration | None = None, clock: Clock | None = None) -> None:
        if most < 1:
            raise ConfigError(f"A cache cannot have {most} answers.", hint="Give 1 or more.")
        self._most = most
        self._ttl_s = None if ttl is None else in_seconds(ttl, "ttl", positive=True)
        self._clock = clock or SystemClock()
        self._answers: OrderedDict[str, tuple[float, CachedAnswer]] = OrderedDict()

    async def get(self, key: str) -> CachedAnswer | None:
        """See `AnswerCache.get`."""
        kept_s, answer = self._answers.get(key, (0.0, None))
        if answer is None:
            return None
        if self._ttl_s is not None and self._clock.monotonic() - kept_s >= self._ttl_s:
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return answer

    async def put(self, key: str, answer: CachedAnswer) -> None:
        """See `AnswerCache.put`."""
        self._answers[key] = self._clock.monotonic(), answer
        self._answers.move_to_end(key)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)


def key_of(name: str, arguments: Mapping[str, Any]) -> str:
    """The key of a call: a hash of its model, prompt, parameters, tools and schema."""
    return sha256(canonical_json({"name": name, "arguments": arguments})).hexdigest()


def through(
    cache: AnswerCache, key: str, make: Callable[[str], Awaitable[Any]], write: Write | None
) -> Callable[[str], Awaitable[Any]]:
    """A call that looks into a cache first, and keeps its answer there."""

    async def look_or_make(call_id: str) -> Any:
        known = await cache.get(key)
        if known is None:
            made = await make(call_id)
            await cache.put(key, CachedAnswer(call_id, made))
            return made
        if write is not None:
            await write(str(known.result.get("text") or ""))
        return {**known.result, "usage": _NOTHING, "cost_nano_usd": 0, "repeats": known.call_id}

    return look_or_make
