"""What the tools of a run tell of their calls while these go on: read from the stream topic, and bounded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard.stream import ToolProgressed

PROGRESS: Final = ToolProgressed.TYPE
MAX_MESSAGE: Final = 500
"""Characters of a message."""


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """How far one call of a tool is, as the tool says.

    Attributes:
        tool: the tool's name.
        call_id: the id of the call.
        done: how much is done.
        total: of how much; None: it does not say.
        message: what it says besides, of at most `MAX_MESSAGE` characters; empty if it says nothing, or if it
            is sealed and this reader has no key.
        node: the node that makes the call.
        step: superstep of the node.
    """

    tool: str
    call_id: str
    done: float
    total: float | None
    message: str
    node: str
    step: int


class ProgressOrder:
    """What one reader takes of the progress of a run: what the run's agent has written.

    Args:
        run_id: the run.
        agent_type: its agent type: only its workers write its progress.

    Attributes:
        agent_id: the agent that has the run; None: not known yet.
        offset: None: the reader begins where the run does.
        dropped: how many records were dropped, by reason.
    """

    def __init__(self, run_id: str, agent_type: str) -> None:
        self.agent_id: str | None = None
        self.offset: int | None = None
        self.dropped: Counter[str] = Counter()
        self._run_id = run_id
        self._agent_type = agent_type

    def take(self, event: EventEnvelope, offset: int) -> ToolProgress | None:
        """Return the progress in a record of this run; None: it has none for this reader."""
        producer, said = event.producer, event.payload
        if event.event_type != PROGRESS or said["run_id"] != self._run_id:
            self.drop("are no progress of this run")
            return None
        if producer.agent_type != self._agent_type or self.agent_id not in (None, producer.agent_id):
            self.drop("are not from the agent of the run")
            return None
        message = said.get("message")
        return ToolProgress(
            tool=said["tool"],
            call_id=said["call_id"],
            done=said["done"],
            total=said.get("total"),
            message=message[:MAX_MESSAGE] if isinstance(message, str) else "",
            node=said["node"],
            step=said["step"],
        )

    def drop(self, reason: str) -> None:
        """Count a record that is dropped."""
        self.dropped[reason] += 1

    def wrong(self) -> str:
        """Say how many records were dropped, and why; empty: there were none."""
        return ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
