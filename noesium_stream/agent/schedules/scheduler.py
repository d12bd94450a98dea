"""The scheduler: the agent that owns schedules (`noesium worker agents.scheduler`), and its state.

Decision record: a schedule is not a run, but a row in the state of a handler. So a schedule of minutes that
lives for years is as small as on its first day, and is taken over in milliseconds: the state is folded from
the topic `events.schedule` and stored beside it. What a person says of a schedule is a fact of that topic,
which nobody has to be there for. Handled events, commands to agents and the read position are one commit of
the partition's fenced owner, so a tick starts its run once, and the run's id follows from the tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noesium_stream.agent.handler import BaseHandler
from noesium_stream.agent.request import AgentRequest
from noesium_stream.agent.schedules.decider import decide
from noesium_stream.agent.schedules.feeder import ScheduleFeeder
from noesium_stream.agent.schedules.projection import Schedules
from noesium_stream.agent.schedules.state import Schedule
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope


class Scheduler(BaseHandler):
    """Starts runs of agents at the times that schedules name, each tick once."""

    agent_type = "scheduler"
    version = "1.0.0"
    state = Schedules

    def handle(self, event: EventEnvelope, state: Schedule) -> Iterable[DomainEvent | AgentRequest]:
        """See `decide`."""
        return decide(state, event).made

    async def feeder(self, rows: Mapping[str, Any]) -> ScheduleFeeder:
        """What tells of due ticks and of ended runs."""
        context = self.context
        found = ScheduleFeeder(context.log, context.clock, context.agent_ref, context.progress)
        await found.begin(rows)
        return found
