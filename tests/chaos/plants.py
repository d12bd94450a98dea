"""Bugs that are planted in workers to see whether the harness catches them; each is switched on here alone.

Some are those of the simulation (`tests.sim.planted`), where they concern what a worker does on any log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest

from noesium_stream.event.standard import HandlerAdvanced
from noesium_stream.log.kafka.writer import KafkaWriter
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.log.sqlite.writer import SqliteWriter
from noesium_stream.worker.handlers.tenure import HandlerTenure
from tests.chaos.points import of_runs
from tests.sim import planted


class Plant(NamedTuple):
    """A bug, the points that bring it to light, and what the faults of a run begin with that catches it."""

    switch_on: Callable[[pytest.MonkeyPatch], None]
    points: tuple[str, ...]
    words: tuple[str, ...]


def publish_twice(patch: pytest.MonkeyPatch) -> None:
    """Some commits are made again, as if nobody had acknowledged them."""
    for writer in (KafkaWriter, SqliteWriter):
        patch.setattr(writer, "commit", _twice(writer.commit))


def _twice(commit: Callable[..., Any]) -> Callable[..., Any]:
    count = 0

    async def again(self: Any, outgoing: Sequence[Outgoing]) -> list[Position]:
        nonlocal count
        count += of_runs(outgoing)
        positions: list[Position] = await commit(self, outgoing)
        if count % 5 == 4 and of_runs(outgoing):
            await commit(self, outgoing)
        return positions

    return again


def commit_offsets_early(patch: pytest.MonkeyPatch) -> None:
    """How far a handler has read is committed before what it has made of it."""

    async def commit(self: HandlerTenure, cursor: int, handled: int, outgoing: Sequence[Outgoing]) -> None:
        context = self._context
        advanced = HandlerAdvanced(
            agent_type=context.agent_type,
            topic=context.inbox,
            topic_id=self._topic_id,
            partition=context.partition,
            next_offset=cursor,
            handled=handled,
            made=len(outgoing),
        )
        await self._committer.submit([context.record(advanced)]).wait()
        if outgoing:
            await self._committer.submit(outgoing).wait()
        self._told = cursor

    patch.setattr(HandlerTenure, "_commit", commit)


PLANTS: Final[dict[str, Plant]] = {
    "publish_twice": Plant(publish_twice, ("after-intent",), ("repeated", "doubled", "sums")),
    "commit_offsets_early": Plant(commit_offsets_early, ("before-handler-commit",), ("lost", "sums")),
    "call_again_after_a_takeover": Plant(
        planted.call_again_after_a_takeover, ("during-effect", "after-effect"), ("effect",)
    ),
}
