"""Whose turn it is: calls of sessions, one at a time in each, with a bounded number of processes for all.

Decision record: calls go in the order in which they came, whatever their session. A session whose process is
idle, and whose next call came later than that of a session without one, loses its process to that one: with
more sessions than places processes come and go, and nobody waits for ever. Pure: no clock, no tasks.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from noesium_stream.errors import SubagentBusyError


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """One call that waits for its turn, or has it."""

    session: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A ticket that may go; `ends`: the session whose idle process has to end before."""

    ticket: Ticket
    ends: str | None = None


class Turns:
    """The queue of calls, and the sessions that have a place for a process.

    Args:
        places: most sessions with a process.
        waiting: most calls that wait.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self._most: Final = places
        self._most_waiting: Final = waiting
        self._queue: list[Ticket] = []
        self._working: dict[str, Ticket] = {}
        self._places: OrderedDict[str, None] = OrderedDict()  # the one used last is the last

    def join(self, session: str, who: str) -> Ticket:
        """Take a ticket; `due` says when it may go. `who`: the sub-agent, for the message.

        Raises:
            SubagentBusyError: too many calls wait already.
        """
        if len(self._queue) >= self._most_waiting:
            raise SubagentBusyError(
                f"{who}: {len(self._queue)} calls wait for their turn already.",
                hint="Call again later, or let it have more places or workers.",
            )
        ticket = Ticket(session)
        self._queue.append(ticket)
        return ticket

    def due(self) -> list[Turn]:
        """Return the tickets that may go now; they have their turn from here on."""
        found = []
        for ticket in list(self._queue):
            turn = self._turn(ticket)
            if turn is not None:
                self._queue.remove(ticket)
                found.append(turn)
        return found

    def _turn(self, ticket: Ticket) -> Turn | None:
        session, ends = ticket.session, None
        if session in self._working:
            return None
        if session not in self._places and len(self._places) >= self._most:
            ends = next((place for place in self._places if place not in self._working), None)
            if ends is None:
                return None
            del self._places[ends]
        self._working[session] = ticket
        self._places[session] = None
        self._places.move_to_end(session)
        return Turn(ticket, ends)

    def leave(self, ticket: Ticket) -> None:
        """Give the turn back, or stop waiting for it."""
        if self._working.get(ticket.session) is ticket:
            del self._working[ticket.session]
        elif ticket in self._queue:
            self._queue.remove(ticket)

    def vacate(self, session: str) -> None:
        """Note that a session has no process any more; one that has its turn keeps its place."""
        if session not in self._working:
            self._places.pop(session, None)

    def is_working(self, session: str) -> bool:
        """Whether a call of the session has its turn."""
        return session in self._working
