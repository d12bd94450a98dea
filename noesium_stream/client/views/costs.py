"""What models have cost: a fold over the events of runs (RFC-1001 §15).

Money is in nano-dollars. Calls without a known price are counted, and never taken for free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog

By = Literal["agent", "run", "model", "branch"]
BY: Final[tuple[By, ...]] = ("agent", "run", "model", "branch")
TYPES: Final = (
    "run.started",
    "model.invoked",
    "model.repeated",
    "model.completed",
    "model.failed",
    "model.denied",
)
_ABOVE: Final = 200


@dataclass(slots=True)
class Costs:
    """What calls of models took.

    Attributes:
        name: the agent, run, model or branch.
        calls: calls that were made.
        failed: of these, the ones that failed.
        denied: calls that a budget has refused.
        cached: answers that were given again from a cache; no call was made for them.
        lost: calls that were repeated after a crash; what the first one cost is not known.
        input_tokens, output_tokens: of the answered calls.
        nano_usd: of those whose price is known.
        unpriced: answered calls whose price is not known.
        estimated: answered calls whose tokens are an estimate.
    """

    name: str
    calls: int = 0
    failed: int = 0
    denied: int = 0
    cached: int = 0
    lost: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    nano_usd: int = 0
    unpriced: int = 0
    estimated: int = 0

    def add(self, event_type: str, payload: dict[str, Any]) -> None:
        """Count one event of a call."""
        self.calls += event_type in ("model.invoked", "model.repeated")
        self.lost += event_type == "model.repeated"
        self.failed += event_type == "model.failed"
        self.denied += event_type == "model.denied"
        if event_type == "model.completed":
            cached = payload.get("repeats") is not None
            self.cached += cached
            self.calls -= cached  # its `model.invoked` was counted
            self.input_tokens += payload["input_tokens"]
            self.output_tokens += payload["output_tokens"]
            self.estimated += payload["estimated"]
            cost = payload["cost_nano_usd"]
            self.unpriced += cost is None
            self.nano_usd += cost or 0


@dataclass(slots=True)
class CostFold:
    """The calls of models of many runs; `apply` takes events in the order of each run's journal."""

    agents: dict[str, str] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def apply(self, event: EventEnvelope) -> None:
        """Take one event; a copy of one that was there changes nothing."""
        payload = event.payload
        if event.event_id in self._seen:
            return
        self._seen.add(event.event_id)
        if event.event_type == "run.started":
            run_id = payload["run_id"]
            self.agents.setdefault(run_id, payload["agent_type"])
            above = (payload.get("reply_to") or {}).get("run_id")
            if above is not None:
                self.parents.setdefault(run_id, above)
        elif event.event_type in TYPES and payload.get("run_id") is not None:
            self.calls.append((event.event_type, payload["run_id"], payload))

    def above(self, run_id: str) -> list[str]:
        """The run and those above it, from the root on."""
        found = [run_id]
        while (parent := self.parents.get(found[-1])) is not None and len(found) < _ABOVE:
            found.append(parent)
        return found[::-1]

    def costs(self, by: By, below: str | None = None) -> list[Costs]:
        """The costs by agent, run, model or branch (the agents from the root to the run), dearest first.

        Args:
            by: what a row is about.
            below: only this run and those below it; None: all.
        """
        rows: dict[str, Costs] = {}
        for event_type, run_id, payload in self.calls:
            chain = self.above(run_id)
            if below is not None and below not in chain:
                continue
            name = self._name(by, run_id, chain, payload)
            rows.setdefault(name, Costs(name)).add(event_type, payload)
        return sorted(rows.values(), key=lambda one: (-one.nano_usd, -one.input_tokens, one.name))

    def _name(self, by: By, run_id: str, chain: list[str], payload: dict[str, Any]) -> str:
        if by == "model":
            return str(payload["model"])
        if by == "run":
            return run_id
        if by == "agent":
            return self.agents.get(run_id, "?")
        return " › ".join(self.agents.get(one, "?") for one in chain)


def total(rows: Iterable[Costs]) -> Costs:
    """The sum of rows."""
    found = Costs("total")
    for row in rows:
        for name in (name for name in Costs.__slots__ if name != "name"):
            setattr(found, name, getattr(found, name) + getattr(row, name))
    return found


async def read_costs(log: EventLog, agent_types: Iterable[str]) -> CostFold:
    """The calls of models in the journals of these agent types, as the log has them now.

    Raises:
        LogUnavailableError
    """
    fold = CostFold()
    for agent_type in agent_types:
        for generation in await open_generations(log, agent_type):
            journal = generation.journal
            until = await log.end(journal)
            async for record in log.read(journal, {}, until=until, types=TYPES):
                try:
                    fold.apply(record.unchecked)
                except CorruptRecordError:
                    continue  # `noesium doctor` tells of it
    return fold
