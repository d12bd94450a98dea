"""Requests to agents that a handler makes."""

from __future__ import annotations

from typing import NamedTuple

from noesium_stream.event.domain_event import DomainEvent


class AgentRequest(NamedTuple):
    """A command or a request that a handler makes: it goes to the inbox of the agents of type `to`.

    `event` is a `run.requested`, or a `run.cancel.requested`; its `run_id` is the run's, which the handler
    derives from what it handles: after a crash the same event is handled again, and must name the same run.
    """

    event: DomainEvent
    to: str
