"""What a node may do besides computing: call others, cause effects, ask for time and ids.

Everything goes through the run's journal, so that a second execution of the same node (after a crash)
finds what the first one did and does not do it again (law 5).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeVar

from noesium_stream.clock import to_datetime
from noesium_stream.errors import KernelError, ReplayDivergenceError, StateError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.decorators import NodeMeta
from noesium_stream.kernel.delegation import Delegation
from noesium_stream.kernel.effects import Effects
from noesium_stream.kernel.history import StepKey
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.place import Place

T = TypeVar("T")

_RESERVED = ("run.", "kernel.", "effect.", "capability.", "command.", "partition.")

_CURRENT: ContextVar[Step | None] = ContextVar("noesium_step", default=None)


def current_step() -> Step:
    """The step that the calling node runs in.

    Raises:
        KernelError: called outside a node, or in a thread that the node started by itself.
    """
    step = _CURRENT.get()
    if step is None:
        raise KernelError(
            "current_step() was called outside a node.",
            hint="Call it in the node's own task, in asyncio children of it or under asyncio.to_thread; bare "
            "threads and executors do not carry the step.",
        )
    return step


class Step:
    """One execution of one node of one run."""

    def __init__(self, journal: RunJournal, node: str, key: StepKey, meta: NodeMeta, attempt: int) -> None:
        self._place = place = Place(journal, node, key, meta, attempt)
        self._delegation = Delegation(place)
        self._effects = Effects(place)
        self._events: list[DomainEvent] = []
        self._random = random.Random(place.derived("random"))

    def activate(self) -> Any:
        """Make this the current step; give the result to `deactivate`."""
        return _CURRENT.set(self)

    def deactivate(self, token: Any) -> None:
        """Undo `activate`."""
        _CURRENT.reset(token)

    @property
    def node(self) -> str:
        """The node's name in its graph."""
        return self._place.node

    @property
    def key(self) -> StepKey:
        """Superstep and task path."""
        return self._place.key

    @property
    def run_id(self) -> str:
        """The run that this step belongs to."""
        return self._place.run_id

    @property
    def entered_id(self) -> str:
        """Event id of this step's `kernel.node.entered`."""
        return self._place.entered.event_id

    def now(self) -> datetime:
        """The time at which this node was first entered, UTC: the same on every execution."""
        return to_datetime(self._place.entered.timestamp_ms)

    def uuid(self) -> str:
        """A new id, the same on every execution of this node."""
        return self._place.derived("uuid", str(self._place.occurrence("uuid")))

    def random(self) -> float:
        """A number in [0, 1), the same on every execution of this node."""
        return self._random.random()

    def emit(self, event: DomainEvent) -> None:
        """Put a domain event into the step's commit; the same as returning it in `_pending_events`."""
        self._events.append(event)

    def stage_events(self, returned: Sequence[DomainEvent]) -> None:
        """Stage what was emitted, then what the node returned; a node that fails emits nothing.

        Raises:
            StateError: an event has a type that the kernel alone writes.
        """
        for index, event in enumerate([*self._events, *returned]):
            if event.event_type().startswith(_RESERVED):
                raise StateError(
                    f"The node {self.node} emits {event.event_type()}, which the kernel alone writes.",
                    hint="Give the event a domain of its own, such as `ticket.answered`.",
                )
            self._place.stage(event, key=self._place.event_key(str(index)))

    async def invoke(
        self, capability_id: str, arguments: Mapping[str, Any], *, version: str | None = None
    ) -> Any:
        """Delegate to whoever offers `capability_id` and wait for the answer (RFC-0005, RFC-1001 §10.3).

        The choice of the provider is recorded with the call; a second execution takes the same one and
        waits for the same answer.

        Raises:
            CapabilityNotFoundError: nobody offers it in this version range.
            CapabilityError: the provider answered with an error.
        """
        return await self._delegation.invoke(capability_id, arguments, version=version)

    async def effect(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
        timeout: timedelta | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call something outside, once: intent on the log, the call, its result on the log (law 5).

        A function with a parameter `idempotency_key` is given the effect's: the same text whenever this very
        call is made again, another one after a recorded failure.

        `function` may be sync (it runs in a thread) or async. Arguments and result must have a JSON form.
        A second execution returns the recorded result. If only the intent is recorded, pure and
        idempotent effects are done again under the same idempotency key; an external one is not: its
        outcome is unknown, which is recorded, and the node fails. The same holds for one that did not end
        within `timeout`, or whose result has no JSON form.

        Raises:
            NodeExecutionError: the outcome of an earlier execution is unknown.
            StateError: arguments or result have no JSON form.
            Exception: what `function` raises, after it is recorded as `effect.failed`.
        """
        return await self._effects.perform(
            name, function, *args, effect_class=effect_class, timeout=timeout, **kwargs
        )

    async def signal(self, name: str) -> Any:
        """Wait for the next signal of this name to this run and return its value.

        Signals are counted within a node: the first call takes the first signal that came, and so on.
        """
        history = self._place.history
        index = self._place.occurrence(f"signal:{name}")
        await self._place.journal.until(lambda: len(history.signals.get(name, ())) > index)
        return history.signals[name][index].payload.get("value")

    def check_complete(self) -> None:
        """Compare what this step did with what the log says of its earlier execution.

        A node that failed before may take another way the next time, and so may one whose effect failed and
        is tried again; then there is nothing to compare.

        Raises:
            ReplayDivergenceError: a recorded call was not made this time.
        """
        place = self._place
        if place.tried_again or place.history.failures[place.key]:
            return
        for call_id, event in [*place.history.invoked.items(), *place.history.requested.items()]:
            mine = event.causation_id == place.entered.event_id
            fingerprint = event.payload.get("fingerprint", call_id)
            if mine and fingerprint not in place.called:
                what = event.payload.get("capability_id") or event.payload.get("name")
                raise ReplayDivergenceError(
                    f"run {place.run_id}, step {self.key[0]}, node {self.node}: the log records a call of "
                    f"{what} that this execution did not make.",
                    hint="The node's code or its input differs from the recorded execution.",
                )
