"""A copy of the registered tools in this process, which a worker follows while it is open."""

from __future__ import annotations

from noesium_stream.capabilities.topic_copy import TopicCopy
from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError
from noesium_stream.event.standard import ToolAccepted
from noesium_stream.event.trust.policy import Policy, Right, ruling
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.tool.definitions.fold import DefinitionsProjection
from noesium_stream.tool.definitions.state import DefinitionsState


class DefinitionsCopy(TopicCopy[DefinitionsState]):
    """The registered tools as far as they were folded here; see `TopicCopy` for refreshing and following.

    Anyone may write to the topic: a record that is wrong, or that the policy does not allow, is passed over.

    Args:
        log: the log.
        clock: of the pauses while the log does not answer.
        policy: decides whose registrations and acceptances count; None: everybody's.
    """

    def __init__(self, log: EventLog, *, clock: Clock, policy: Policy | None = None) -> None:
        super().__init__(log, clock=clock, projection=DefinitionsProjection())
        self._policy = policy

    def is_accepted(self, agent_type: str, tool_id: str, definition_hash: str) -> bool:
        """Whether a call by this definition may be made, as far as the topic was read; asks no log."""
        return self.state.is_accepted(agent_type, tool_id, definition_hash)

    def _check(self, record: Record) -> None:
        event = record.envelope
        right: Right = "accept" if event.event_type == ToolAccepted.TYPE else "register"
        agent_type = event.payload.get("agent_type") or event.producer.agent_type
        refused = ruling(self._policy, event, record.signed_by, right, agent_type).refused
        if refused is not None:
            raise EventValidationError("producer", refused)
