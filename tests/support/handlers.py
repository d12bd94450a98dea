"""The owner of a handler's partition by itself, without a worker and without a group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from noesium_stream.agent import AgentContext, BaseHandler
from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.worker.handlers import tenure
from noesium_stream.worker.handlers.tenure import HandlerOwner, HandlerTenure


class Here:
    """The group leaves the partition to this process, and reads it from where it is told to."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    async def tenure(self) -> None:
        return None

    async def still_here(self) -> bool:
        return True

    async def start_at(self, offset: int) -> None:
        self.starts.append(offset)


def handler_owner(
    log: EventLog,
    handler: type[BaseHandler],
    home: Path,
    *,
    domain: str,
    here: Here | None = None,
    progress: Callable[[str], None] = lambda line: None,
    on_taken: Callable[[], None] = lambda: None,
) -> HandlerOwner:
    """Of partition 0 of the events of a domain; the handler's journal has to be there."""
    name = handler.agent_type
    reference = AgentRef(name, name, "local", "1")
    context = AgentContext(home=home, log=log, clock=SystemClock(), progress=progress, agent_ref=reference)
    agent = handler(handler.Options(), context)
    place = TopicPartition(log.topology.events(domain), 0)
    assignment: Any = here or Here()

    def failed(error: BaseException) -> None:
        raise error

    return tenure.handler_owner(log, agent, place, assignment, home, on_failure=failed, on_taken=on_taken)


def tenure_of(owner: HandlerOwner) -> HandlerTenure:
    """The tenure of a partition that is owned."""
    assert owner.tenure is not None
    return owner.tenure
