"""Circuit breakers: what fails again and again is passed over for a while (RFC-0005).

A process counts the answers to the calls of its own runs. The events are folded by everybody: `opened` after
so many failures in a row, `closed` by the first success, and in between, after a while, the watcher's
`probed` (`worker.watch`). A run has chosen its provider on the log: nothing here changes a call that was
made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CallLimitError,
    CapabilityInputError,
    EventStoreError,
    PermissionDeniedError,
    RunCancelledError,
)
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import CapabilityCircuitClosed, CapabilityCircuitOpened
from noesium_stream.log.port import EventLog

OPENS_AFTER: Final = 5
"""Failures in a row that open a circuit."""

_MOST: Final = 10_000
"""Offers whose failures are counted."""

_MAX_REASON: Final = 300
_OF_THE_CALLER: Final = frozenset(
    kind.__name__ for kind in (CallLimitError, CapabilityInputError, PermissionDeniedError, RunCancelledError)
)
"""Errors that say nothing about the provider."""


class Circuits:
    """Counts how calls end, and says so in the registry where that opens or closes a circuit.

    Args:
        log: where the registry is.
        registry: as far as it was read here.
        reference: in whose name it writes: the calling agent.
        clock: makes ids and times.
    """

    def __init__(
        self, log: EventLog, registry: CapabilityRegistry, reference: AgentRef, clock: Clock
    ) -> None:
        self._log = log
        self._registry = registry
        self._reference = reference
        self._clock = clock
        self._failures: dict[tuple[str, str], int] = {}
        self._writing: dict[tuple[str, str], asyncio.Task[None]] = {}

    def answered(self, invoked: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Take note of an answer to a call, both as payloads; one to a task concerns no chosen provider."""
        if "target_agent_id" not in invoked:
            return
        error = answer.get("error")
        if error is None:
            self._succeeded(invoked)
        elif answer.get("began") is not False and answer.get("error_type") not in _OF_THE_CALLER:
            self.failed(invoked, error)

    def failed(self, invoked: Mapping[str, Any], reason: str) -> None:
        """Take note of a call without a result; see `answered`."""
        if "target_agent_id" not in invoked:
            return
        key = invoked["target_agent_id"], invoked["capability_id"]
        count = self._failures.pop(key, 0) + 1
        self._failures[key] = count
        if len(self._failures) > _MOST:
            del self._failures[next(iter(self._failures))]
        circuit = self._registry.circuit(*key)
        if (count >= OPENS_AFTER) if circuit is None else circuit.probing:
            self._say(
                key,
                CapabilityCircuitOpened(
                    agent_id=key[0],
                    agent_type=invoked["target_agent_type"],
                    capability_id=key[1],
                    failures=count,
                    reason=reason[:_MAX_REASON],
                ),
            )

    def _succeeded(self, invoked: Mapping[str, Any]) -> None:
        key = invoked["target_agent_id"], invoked["capability_id"]
        self._failures.pop(key, None)
        if self._registry.circuit(*key) is not None:
            self._say(
                key,
                CapabilityCircuitClosed(
                    agent_id=key[0], agent_type=invoked["target_agent_type"], capability_id=key[1]
                ),
            )

    async def settled(self) -> None:
        """Return when all that was said is on the log, or could not be written."""
        await asyncio.gather(*self._writing.values())

    def _say(self, key: tuple[str, str], event: DomainEvent) -> None:
        # Until it is read back, every further answer would say it again: a thousand may come at once.
        if key not in self._writing:
            task = asyncio.create_task(self._write(event), name="write of a circuit")
            self._writing[key] = task
            task.add_done_callback(lambda _: self._writing.pop(key))

    async def _write(self, event: DomainEvent) -> None:
        # A circuit is advice: where it cannot be written now, the next failure says it again.
        with suppress(EventStoreError):
            await self._log.append([root_event(event, self._reference, self._clock)])
            await self._registry.refresh()
