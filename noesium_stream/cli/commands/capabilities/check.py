"""Check of an agent's capabilities before its deploy: their registration, and recorded calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from noesium_stream.capabilities.admission import is_news, predecessor
from noesium_stream.capabilities.capability_set import CapabilitySet
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.state import RegistryState
from noesium_stream.cli.agents import find_agent
from noesium_stream.cli.replaying import target_for
from noesium_stream.client import Client, operate
from noesium_stream.errors import CapabilityError
from noesium_stream.event.standard import Capability
from noesium_stream.log import EventLog


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome for a capability, or for a recorded run that was replayed; `subject` says for which."""

    subject: str
    outcome: str
    is_refused: bool = False
    detail: str | None = None

    def lines(self) -> list[str]:
        """For people."""
        detail = [] if self.detail is None else self.detail.splitlines()
        return [f"{self.subject}  {self.outcome}", *(f"  {line}" for line in detail)]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


async def checked(log: EventLog, registry: CapabilityRegistry, agent: str, runs: int | None) -> list[Checked]:
    """Check what an agent would register, and replay the last `runs` calls of it.

    Raises:
        AgentLoadError: there is no such agent.
        ConfigError: a capability is not valid.
    """
    kind = find_agent(agent)
    state = await registry.refresh()
    found = [_registration(state, kind.agent_type, one) for one in CapabilitySet(kind.capabilities)]
    if not found:
        found = [Checked(kind.agent_type, "offers nothing to other agents")]
    return found if runs is None else [*found, *await _replayed(log, agent, kind.agent_type, runs)]


def _registration(state: RegistryState, agent_id: str, one: Capability) -> Checked:
    subject = f"{one.id} {one.version}"
    try:
        new = is_news(state, agent_id, one)
    except CapabilityError as error:
        return Checked(subject, f"is refused: {error.message}", is_refused=True, detail=error.hint)
    if not new:
        return Checked(subject, "is registered already")
    before = predecessor(state, agent_id, one)
    after = "" if before is None else f": callers of {before.version} can call it"
    return Checked(subject, f"can be registered{after}")


async def _replayed(log: EventLog, agent: str, agent_type: str, count: int) -> Sequence[Checked]:
    """Replay the last calls that have ended, newest first, up to the first that differs."""
    found: list[Checked] = []
    async with Client(log) as client:
        if agent_type not in await client.agent_types():
            return [Checked(agent_type, "has no recorded calls")]
        runs = await client.list_runs(agent_type=agent_type)
        called = [one for one in runs if one.parent_run_id is not None and one.ended_ms is not None]
        for info in called[:count]:
            run = await client.get_run(info.run_id)
            verdict = await operate.replay.verify(run, target_for(log, agent, (), agent_type))
            if verdict.difference is not None:
                detail = str(verdict.difference)
                return [*found, Checked(info.run_id, "would be another one", is_refused=True, detail=detail)]
            found.append(Checked(info.run_id, f"is as recorded, {verdict.steps} steps"))
    return found or [Checked(agent_type, "has no recorded calls")]
