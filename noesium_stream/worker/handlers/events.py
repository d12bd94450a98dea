"""Calls `handle` for each event while it is folded, with the state before that event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from noesium_stream.agent.handler import BaseHandler
from noesium_stream.agent.request import AgentRequest
from noesium_stream.errors import (
    ConfigError,
    EventHeldError,
    EventValidationError,
    RecordTooLargeError,
    hint_of,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import HandlerAdvanced
from noesium_stream.kernel.failure_location import where_of
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.worker.handlers.destinations import Destinations
from noesium_stream.worker.handlers.encoding import Encoding, Lone

REFUSED: Final = (RecordTooLargeError, EventValidationError)
"""Errors of a commit that the log has refused and would refuse again."""

_KEY_WIDTH: Final = 80


class Handling:
    """Wraps the functions of a fold's projection, so that `handle` is called just before `apply`.

    Args:
        log: the log that the made events go to.
        agent: the handler.
        state: the projection that is folded.
    """

    def __init__(self, log: EventLog, agent: BaseHandler, state: BaseProjection[Any]) -> None:
        context = agent.context
        self._state = state
        self._row_of, self._apply = state.key, state.apply
        self._handles, self._key_made = agent.handle, agent.partition_key_of
        self._keeps_keys = type(agent).partition_key_of is BaseHandler.partition_key_of
        self._destinations = Destinations(log)
        self._encoding = Encoding(context.agent_ref, context.clock, f"{agent.agent_type}/", log)
        self._collecting = False
        self._keyed: Any = None
        self._handled = 0
        self._made: list[Outgoing | Lone] = []
        self._row: str | None = None
        self._touched: dict[str, None] = {}
        self._follows = type(agent).feeder is not BaseHandler.feeder

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """See `projection.folding.through`."""
        return self.instead_of(function)(*args)

    def instead_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """See `projection.folding.through`."""
        if function == self._state.key:
            return self.row_of
        return self.applied if function == self._state.apply else function

    def take(
        self, fold: PartitionFold[Any], records: Sequence[Record]
    ) -> tuple[list[Outgoing | Lone], int, EventHeldError | None]:
        """Fold and handle the next records.

        Return the made events, the number of handled ones, and the error of an event that stops the handler.
        """
        self._made, self._handled, self._collecting = [], 0, True
        self._encoding.begin()
        failure: EventHeldError | None = None
        try:
            fold.take(records)
        except EventHeldError as error:
            failure = error
        finally:
            made, self._made, self._collecting = self._made, [], False
        return made, self._handled, failure

    def row_of(self, event: EventEnvelope) -> str | None:
        """Return the row of an event; the fold calls this as `key`, and the event is handled next."""
        self._keyed = event
        if event.event_type == HandlerAdvanced.TYPE:
            return None  # two handlers that read each other's journals would never end
        if not self._follows:
            return self._row_of(event)
        self._row = self._row_of(event)
        return self._row

    def applied(self, state: Any, event: EventEnvelope) -> Any:
        """Handle an event, then fold it; the fold calls this as `apply`.

        When a row is folded again after a failed event, only `apply` is called.
        """
        if not self._collecting or event is not self._keyed:
            return self._apply(state, event)
        self._keyed = None
        if self._row is not None:
            self._touched[self._row] = None
        results = list(self._handles(event, state))
        after = self._apply(state, event)
        made, encoding = self._made, self._encoding
        before = len(made)
        try:
            for number, result in enumerate(results):
                if isinstance(result, AgentRequest):
                    made.append(encoding.request(result, event, number))
                    continue
                key = event.partition_key if self._keeps_keys else self._key_made(result, event)
                one = encoding.of(result, event, key, number)
                made.append(encoding.alone(result, event, key, number) if one is None else one)
        except BaseException:
            del made[before:]  # all events made from an event, or none
            raise
        self._handled += 1
        return after

    def touched(self) -> list[str]:
        """The rows of the events that were handled since the last call, if the agent has a feeder."""
        touched, self._touched = [*self._touched], {}
        return touched

    async def outgoing(self, made: list[Outgoing | Lone]) -> list[Outgoing]:
        """Address the events that have no destination yet."""
        if Lone not in set(map(type, made)):
            return cast("list[Outgoing]", made)
        destinations, outgoing = self._destinations, []
        for one in made:
            if isinstance(one, Lone):
                result, envelope, encoded = one
                one = destinations.known(envelope) or await destinations.of(envelope)
                place = destinations.place_of(envelope.event_type)
                if place is not None and not envelope.metadata:
                    self._encoding.learn(result, envelope, *place)
                one = one._replace(envelope=encoded)
            outgoing.append(one)
        return outgoing


def misplaced(state: BaseProjection[Any], record: Record, key: str) -> ConfigError:
    """The error for an event whose row may have parts in other partitions."""
    name = type(state).__name__
    return ConfigError(
        f"`key` of {name} is {_shown(key)}, and the partition key is {_shown(record.key)}: the handler has "
        "the state of this partition alone, and other events of that key may lie in others.",
        hint=f"Return the partition key, and bring events of another key together first: a handler publishes "
        f"them under it (`partition_key_of`). Or say local_keys = True in {name} if a state per partition is "
        "wanted.",
    )


def _shown(key: str) -> str:
    return repr(key if len(key) <= _KEY_WIDTH else f"{key[: _KEY_WIDTH - 1]}…")


def stopped_at(agent: BaseHandler, failure: EventHeldError) -> EventHeldError:
    """Make the error of a handler that stops at an event, with the place and hint of its cause."""
    cause = failure.__cause__
    said = failure.message.replace(f"The projection {agent.state.name} cannot", "It cannot", 1)
    where = None if cause is None else where_of(cause)
    if where is not None:
        said = f"{said} ({where})"
    advice = None if cause is None else hint_of(cause)
    parts = "`handle`, `partition_key_of` or its state's `apply`"
    mend = f"Mend {parts}, and start the worker again: nothing is skipped."
    return EventHeldError(
        f"The handler {agent.agent_type} stops. {said}",
        hint=mend if advice is None else f"{advice} {mend}",
    )
