"""What all journals of recorded runs have in common: nothing is sent, judged or shown to anybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.contract import Contract
from noesium_stream.kernel.journal import RunPieces, Wanted


class Replaying:
    """Base of the `RunJournal`s that read a recording."""

    pieces: RunPieces | None = None

    def recorded(self, call_id: str) -> EventEnvelope | None:
        """None: a journal that looks ahead has its own."""
        return None

    @property
    def limits(self) -> None:
        """None: the recording says what was refused."""

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """Do nothing: the recording shows whether the log accepted it."""

    def flush(self) -> None:
        """Do nothing: nothing is sent."""

    async def until_offered(self, wanted: Wanted, deadline_ms: int | None = None) -> None:
        """Return at once: `resolve` says whether anybody was called."""

    async def contract(self, invoked: Mapping[str, Any]) -> Contract:
        """A contract that takes anything."""
        return Contract()

    async def learn_inbox(self, agent_type: str) -> None:
        """Do nothing: nothing is sent."""

    async def learn_facts(self, domain: str) -> None:
        """Do nothing: nothing is sent."""

    async def learn_tasks(self, capability_id: str) -> None:
        """Do nothing: nothing is sent."""
