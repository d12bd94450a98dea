"""Conversations: what a turn costs beside its model, what turn 10,000 costs beside turn 10, and what it takes
another worker to take over so many turns, and another terminal to show them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from agents.assistant import Assistant
from noesium_stream.client import Client
from noesium_stream.client.conversation import Conversation
from noesium_stream.llm import ModelParameters
from noesium_stream.log import EventLog, open_log
from noesium_stream.testing.agents import with_model
from noesium_stream.worker import Worker
from noesium_stream.worker.process_settings import tune_process
from tests.bench.harness import Figure, Side, percentile, progress

TEN = 10
_BUNCH = 50
_ANSWER = "It is in the shed, where you have put it last week, behind the ladder."


@dataclass(frozen=True)
class ChatSettings:
    """Sizes; the defaults are those of a full run."""

    folder: Path
    turns: int = 10_000
    repetitions: int = 5
    measured: int = 20


class InstantModel:
    """A model that answers at once, with the same words."""

    model = "instant:words"
    parameters = ModelParameters("instant:words", version="1", temperature=0, seed=0)

    async def generate(self, prompt: Any, *, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """The words."""
        return {"text": _ANSWER, "model": self.model, "tokens": 14}


async def _said(conversation: Conversation, count: int) -> list[float]:
    """Milliseconds of so many turns, from the message to its answer."""
    took = []
    for number in range(count):
        begun = perf_counter()
        await conversation.process_user_message(f"Where is parcel {number}, and who has it?")
        took.append((perf_counter() - begun) * 1e3)
    return took


async def _filled(conversation: Conversation, count: int) -> float:
    """Send so many messages, bunch by bunch; return the milliseconds until all are answered."""
    begun = perf_counter()
    for first in range(0, count, _BUNCH):
        last = min(first + _BUNCH, count) - 1
        for number in range(first, last):
            await conversation.say(f"Where is parcel {number}, and who has it?")
        await _said(conversation, 1)
    return (perf_counter() - begun) * 1e3


async def measure_turns(settings: ChatSettings) -> list[Figure]:
    """Turns of an old conversation and of young ones, alternately, by one worker on one SQLite log."""
    tune_process(handlers=False)
    log = await open_log(f"sqlite:///{settings.folder / f'{secrets.token_hex(4)}.db'}")
    home = settings.folder / secrets.token_hex(4)
    agent = with_model(Assistant, InstantModel())  # type: ignore[arg-type]
    first_turns = settings.turns - TEN
    async with Worker(log, [agent], home=home), Client(log, agent_id="ada") as client:
        old = await client.start_conversation("assistant", user="ada")
        for done in range(0, first_turns, 1_000):
            count = min(1_000, first_turns - done)
            took = await _filled(old, count)
            progress(f"  {done + count:,} turns, {took / count:.2f} ms each, many of them sent at once")
        early, late = [], []
        for number in range(settings.repetitions):
            young = await client.start_conversation("assistant", user="ada")
            await _said(young, TEN)
            first, second = [], []
            for _ in range(settings.measured):  # turn by turn, so that the disk's mood is the same
                first += await _said(young, 1)
                second += await _said(old, 1)
            early.append(percentile(first, 0.5))
            late.append(percentile(second, 0.5))
            progress(f"  repetition {number + 1}: turn {TEN} {early[-1]:.2f} ms, late {late[-1]:.2f} ms")
    taken = await _taken_over(settings, log, home, agent, old.id, young.id)
    await log.close()
    late_side = Side(f"turn {settings.turns:,}", late)
    early_side = Side(f"turn {TEN}", early)
    cost = "a turn beside a model that answers at once, p50, SQLite"
    growth = f"turn {settings.turns:,} beside turn {TEN}, p50, SQLite"
    return [
        Figure("turns", cost, "ms", early_side, late_side, 20, at_least=False, absolute=True),
        Figure("turns", growth, "ms", late_side, early_side, 1.2, at_least=False),
        *taken,
    ]


async def _taken_over(
    settings: ChatSettings, log: EventLog, home: Path, agent: Any, old_id: str, young_id: str
) -> list[Figure]:
    """From the start of a worker to its first answer in the old conversation, and in a young one.

    With the home of the worker before it, and with an empty one, for which the journal is folded anew. Both
    conversations are on one log, so what it takes beside the run itself is alike.
    """
    figures = []
    for what, homes in (("the state of the last worker", [home]), ("no state", [])):
        times: dict[str, list[float]] = {old_id: [], young_id: []}
        for _ in range(settings.repetitions):
            for run_id, found in times.items():
                async with Client(log, agent_id="ada") as client:
                    conversation = await client.conversation(run_id)
                    where = homes[0] if homes else settings.folder / secrets.token_hex(4)
                    begun = perf_counter()
                    async with Worker(log, [agent], home=where):
                        await conversation.process_user_message("Where is the last parcel?")
                        found.append((perf_counter() - begun) * 1e3)
        progress(f"  taken over with {what}: {[round(min(found)) for found in times.values()]} ms")
        old = Side(f"{settings.turns:,} turns", times[old_id])
        young = Side("a young conversation", times[young_id])
        name = f"taken over with {what}: from the worker's start to an answer, SQLite"
        figures.append(Figure("turns", name, "ms", old, young, 1.2, at_least=False))
    shown = []
    async with Client(log, agent_id="ada") as client:
        for _ in range(settings.repetitions):
            begun = perf_counter()
            await client.conversation(old_id)
            shown.append((perf_counter() - begun) * 1e3)
    side = Side(f"{settings.turns:,} turns", shown)
    figures.append(
        Figure("turns", "read to be shown, SQLite", "ms", side, side, 5_000, at_least=False, absolute=True)
    )
    return figures


OF_CHAT: dict[str, Callable[[ChatSettings], Awaitable[list[Figure]]]] = {"turns": measure_turns}
