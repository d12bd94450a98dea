"""The grants in an exported run: its own, and those that its calls handed on (`event/trust/grants.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.rules.agent_calls import CALLS, COMMANDS
from noesium_stream.event.standard import Grant, ToolLimits
from noesium_stream.event.trust.grants import asked_in, grant_in, link_problem, start_problem


@dataclass(slots=True)
class GrantChain:
    """A fold over the records of a run, in order.

    Attributes:
        own: what the run acted with; None: nothing limited it.
        asked: what the command that asked for the run handed on; None: it has no grant.
        limits: those of the command that asked for the run.
        handed: the grants of the runs that it called, by their ids.
    """

    own: Grant | None = None
    asked: Grant | None = None
    limits: ToolLimits | None = None
    handed: dict[str, Grant | None] = field(default_factory=dict)

    def take(self, event: EventEnvelope, *, received: bool) -> str | None:
        """Add a record; return what is wrong with its grant, or None.

        Raises:
            EventValidationError: it has not the form of a grant.
        """
        kind, payload = event.event_type, event.payload
        if received:
            if kind in COMMANDS:
                self.asked, self.limits = asked_in(event)
        elif kind == "run.started":
            self.own = grant_in(payload)
            return start_problem(self.asked, self.limits, self.own)
        elif kind in CALLS:
            given = grant_in(payload)
            self.handed[payload["run_id"]] = given
            return link_problem(self.own, given)
        return None


def broken_links(chains: Iterable[tuple[str, GrantChain]]) -> Iterator[tuple[str, str]]:
    """Where exported runs of one tree contradict each other: a run's id, and what is wrong with its grant.

    Args:
        chains: of each run, with its id.
    """
    known = dict(chains)
    for run_id, chain in known.items():
        for child, given in chain.handed.items():
            if child in known and known[child].asked != given:
                yield child, f"the run {short(run_id)}, which called it, has handed on another grant"
