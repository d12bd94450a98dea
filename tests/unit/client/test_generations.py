"""Growing an agent type: what is refused, and what becomes of a growth that was broken off."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import cast

import pytest

from noesium_stream.agent import BaseHandler
from noesium_stream.client import Client
from noesium_stream.errors import CommitUnknownError, ConfigError, FencedError, LogUnavailableError
from noesium_stream.event import DomainEvent, EventEnvelope
from noesium_stream.log import open_log
from noesium_stream.log.generations import generations
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.topics import TopicSpec
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.stored.folder import matching
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually
from tests.support.sample_agents import Echo


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=2")
    yield log
    await log.close()


async def partitions(log: EventLog) -> list[int]:
    return [one.partitions for one in await generations(log, "echo")]


@pytest.mark.parametrize(
    ("count", "message"),
    [(2, "echo has 2 partitions already, in generation 1."), (1, "it cannot shrink to 1.")],
)
async def test_an_agent_does_not_shrink_or_stay(log: EventLog, count: int, message: str) -> None:
    async with Client(log) as client:
        await client.start("echo", {"text": "a"})
        with pytest.raises(ConfigError, match=re.escape(message)):
            await client.grow("echo", count)
    assert await partitions(log) == [2]


async def test_an_agent_that_is_not_there_does_not_grow(log: EventLog) -> None:
    async with Client(log) as client:
        with pytest.raises(ConfigError, match="no agents of type echo"):
            await client.grow("echo", 5)
        with pytest.raises(ConfigError, match="not an agent type"):
            await client.grow("No Such", 5)
    assert await log.topics() == []


class Broken(HookedLog):
    """Breaks off at the given step of a growth: making the journal, telling the partitions, the inbox."""

    def __init__(self, log: EventLog, step: str, *, after: bool) -> None:
        super().__init__(log, self._told)
        self._inner = log
        self._step = step
        self._after = after

    async def _told(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        if self._step != "tell":
            return await commit(outgoing)
        if self._after:
            await commit(outgoing)
        raise CommitUnknownError("told to")

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        if any(f"{self._step}.g" in spec.name for spec in specs):
            if self._after:
                await self._inner.ensure_topics(specs)
            raise LogUnavailableError("told to")
        await self._inner.ensure_topics(specs)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["journal", "tell", "inbox"])
async def test_a_growth_that_was_broken_off_is_gone_on_with(
    log: EventLog, step: str, after: bool, tmp_path: Path
) -> None:
    async with Client(log) as client, Client(cast(EventLog, Broken(log, step, after=after))) as cut:
        first = await client.start("echo", {"text": "a"}, idempotency_key="a")
        with pytest.raises((LogUnavailableError, CommitUnknownError)):
            await cut.grow("echo", 5)
        if (step, after) == ("inbox", True):
            with pytest.raises(ConfigError, match="has 5 partitions already"):
                await client.grow("echo", 5)
        else:
            if (step, after) != ("journal", False):
                with pytest.raises(ConfigError, match="being grown to 5 partitions") as told:
                    await client.grow("echo", 6)
                assert "--partitions 5" in str(told.value.hint)
            await client.grow("echo", 5)
        assert await partitions(log) == [2, 5]
        async with Worker(log, [Echo], home=tmp_path):
            assert await first.result(PATIENCE_S) == {"reply": "A"}
            again = await client.start("echo", {"text": "b"}, idempotency_key="a")
            assert await again.result(PATIENCE_S) == {"reply": "A"}
            fresh = await client.start("echo", {"text": "c"})
            assert await fresh.result(PATIENCE_S) == {"reply": "C"}


async def test_who_is_fenced_while_it_tells_can_do_it_again(log: EventLog) -> None:
    async def fenced(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        raise FencedError("told to")

    async with Client(log) as client, Client(cast(EventLog, HookedLog(log, fenced))) as late:
        await client.start("echo", {"text": "a"})
        with pytest.raises(LogUnavailableError, match="could not be told of its growth: told to"):
            await late.grow("echo", 5)
        await client.grow("echo", 5)
    assert await partitions(log) == [2, 5]


async def test_owners_finish_a_growth_that_was_told(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client, Client(cast(EventLog, Broken(log, "inbox", after=False))) as cut:
        async with Worker(log, [Echo], home=tmp_path):
            before = await client.start("echo", {"text": "a"})
            await before.result(PATIENCE_S)
            with pytest.raises(LogUnavailableError):
                await cut.grow("echo", 5)
            later = await client.start("echo", {"text": "b"}, idempotency_key="b")
            assert await later.result(PATIENCE_S) == {"reply": "B"}
        infos = [(one.generation, one.partitions, one.open_runs) for one in await client.generations()]
    assert infos == [(1, 2, 0), (2, 5, 0)]


async def test_open_runs_are_counted_by_generation(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        await client.start("echo", {"text": "a"})
        await client.grow("echo", 3)
        (one, two) = await client.generations(agent_type="echo")
        assert (one.agent_type, one.generation, one.open_runs) == ("echo", 1, 0)
        assert (two.inbox, two.journal) == (log.topology.inbox("echo", 2), log.topology.journal("echo", 2))


class Words(BaseProjection[int]):
    name = "words"
    topics = ("agent.echo.journal", "registry")
    local_keys = True

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1


class Counter(BaseHandler):
    agent_type = "counter"
    state = Words

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        return ()


async def test_a_handler_does_not_grow_and_says_why(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        await client.start("echo", {"text": "a"})
        async with Worker(log, [Counter], home=tmp_path):

            async def owned() -> bool:
                return any(one.agent_type == "counter" and one.owner for one in await client.workers())

            await eventually(owned)
        await client.list_runs()  # which makes an inbox for everything that has a journal
        with pytest.raises(ConfigError, match=r"counter is a handler.*echo\.journal") as told:
            await client.grow("counter", 5)
    assert "part a key from its state" in str(told.value.hint)


async def test_who_folds_a_journal_by_name_folds_its_later_generations(log: EventLog) -> None:
    async with Client(log) as client:
        await client.start("echo", {"text": "a"})
        await client.start("echoes", {"text": "a"})
        await client.grow("echo", 3)
    found = matching(await log.layout(), Words(), log.topology)
    assert found == [log.topology.journal("echo"), log.topology.journal("echo", 2)]
