"""What a node may do besides computing: call others, cause effects, ask for time and ids.

Everything goes through the run's journal, so that a second execution of the same node (after a crash)
finds what the first one did and does not do it again (law 5). A call is identified by its content and
how often the same one occurred in this step, not by a counter: under `gather` the order of calls does
not matter, and a changed call is found out.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from noesium_stream.clock import derived_id, to_datetime
from noesium_stream.errors import (
    CapabilityError,
    KernelError,
    NodeExecutionError,
    ReplayDivergenceError,
    StateError,
    brief,
)
from noesium_stream.event.canonical import canonical_json
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.event.json_value import to_json
from noesium_stream.event.standard import (
    CapabilityInvoked,
    CapabilityUnresolved,
    EffectCompleted,
    EffectFailed,
    EffectOutcomeUnknown,
    EffectRequested,
    NodeEntered,
    NodeRetried,
    ReplyTo,
    SideEffectClass,
)
from noesium_stream.kernel.decorators import NodeMeta
from noesium_stream.kernel.history import StepKey
from noesium_stream.kernel.journal import Destination, RunJournal

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
        self._journal = journal
        self._history = journal.history
        self._clock = journal.clock
        self._run_id = journal.identity.run_id
        self._seen: Counter[str] = Counter()
        self._called: set[str] = set()
        self._again = False
        self._attempt = attempt
        self._events: list[DomainEvent] = []
        self.node = node
        self.key = key
        entered = self._history.entered.get(key)
        if entered is None:
            trace = journal.identity.trace.child(self._clock.token(8))
            event = NodeEntered(
                run_id=self._run_id,
                node=node,
                step=key[0],
                task_path=key[1],
                attempt=attempt,
                deterministic=meta.deterministic,
                entropy_sources=list(meta.entropy_sources),
            )
            cause = self._history.last_event_id or journal.identity.started_event_id
            entered = journal.stage(
                event, trace=trace, causation_id=cause, idempotency_key=self._key("entered")
            )
        elif attempt > 1:
            retried = NodeRetried(
                run_id=self._run_id,
                node=node,
                step=key[0],
                task_path=key[1],
                attempt=attempt,
                cause=self._history.last_failure.get(key, "unknown"),
            )
            journal.stage(
                retried, trace=entered.trace.child(self._clock.token(8)), causation_id=entered.event_id
            )
        self._entered = entered
        self._random = random.Random(derived_id(self._run_id, *self._path(), "random"))

    def activate(self) -> Any:
        """Make this the current step; give the result to `deactivate`."""
        return _CURRENT.set(self)

    def deactivate(self, token: Any) -> None:
        """Undo `activate`."""
        _CURRENT.reset(token)

    @property
    def run_id(self) -> str:
        """The run that this step belongs to."""
        return self._run_id

    @property
    def entered_id(self) -> str:
        """Event id of this step's `kernel.node.entered`."""
        return self._entered.event_id

    def now(self) -> datetime:
        """The time at which this node was first entered, UTC: the same on every execution."""
        return to_datetime(self._entered.timestamp_ms)

    def uuid(self) -> str:
        """A new id, the same on every execution of this node."""
        return derived_id(self._run_id, *self._path(), "uuid", str(self._occurrence("uuid")))

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
            self._stage(event, self._entered.event_id, self._key(str(index)))

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
        sent = to_json(arguments, "arguments")
        call_id = self._call_to_make(self._call_id("invoke", capability_id, sent))
        if call_id not in self._history.invoked:
            await self._send(call_id, capability_id, sent, version)
        answer = await self._journal.answer(call_id)
        if answer.get("error") is not None:
            raise CapabilityError(
                f"{capability_id} failed at {answer['provider_agent_id']}: {answer['error']}"
            )
        return answer.get("output")

    def _call_to_make(self, base: str) -> str:
        """The id of a call in this attempt: one that an earlier attempt made, unless it was answered by an
        error. Such a call is made anew, once per attempt: else no retry could ever help.
        """
        call_id = base
        for attempt in range(1, self._attempt + 1):
            made = base if attempt == 1 else derived_id(base, str(attempt))
            if made not in self._history.invoked:
                call_id = made
                continue
            answer = self._history.answered.get(made)
            if attempt == self._attempt or answer is None or answer.payload.get("error") is None:
                return made
        return call_id

    async def _send(
        self, call_id: str, capability_id: str, sent: dict[str, Any], version: str | None
    ) -> None:
        journal = self._journal
        try:
            provider = await journal.resolve(capability_id, version)
        except CapabilityError:
            unresolved = CapabilityUnresolved(
                run_id=self._run_id, call_id=call_id, capability_id=capability_id, version_range=version
            )
            self._stage(unresolved, self._entered.event_id)
            raise
        identity = journal.identity
        invoked = CapabilityInvoked(
            run_id=call_id,
            capability_id=provider.capability_id,
            version=provider.version,
            caller_agent_id=identity.agent.agent_id,
            caller_run_id=self._run_id,
            target_agent_id=provider.agent_id,
            target_agent_type=provider.agent_type,
            registry_offset=provider.registry_offset,
            input=sent,
            reply_to=ReplyTo(agent_type=identity.agent.agent_type, run_id=self._run_id, call_id=call_id),
        )
        journal.stage(
            invoked,
            trace=self._span(),
            causation_id=self._entered.event_id,
            idempotency_key=call_id,
            to=Destination(provider.agent_type, call_id),
        )
        await journal.commit()

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
        arguments = to_json({"args": args, "kwargs": kwargs}, "arguments")
        base = self._call_id("effect", name, arguments)
        failures = 0
        while True:
            effect_id = derived_id(base, str(failures))
            outcome = self._history.outcomes.get(effect_id)
            if outcome is None:
                break
            if outcome.event_type == "effect.completed":
                return outcome.payload.get("result")
            if outcome.event_type == "effect.outcome.unknown":
                raise _unknown(name, effect_id, outcome.payload["reason"])
            failures += 1
            self._again = True
        if effect_id in self._history.requested:
            await self._repeat(name, effect_id, effect_class)
        else:
            await self._intend(name, effect_id, base, effect_class, arguments)
        if _takes_key(function):
            kwargs["idempotency_key"] = effect_id
        return await self._perform(effect_id, effect_class, partial(function, *args, **kwargs), timeout)

    async def _intend(
        self, name: str, effect_id: str, fingerprint: str, effect_class: SideEffectClass, arguments: Any
    ) -> None:
        event = EffectRequested(
            run_id=self._run_id,
            effect_id=effect_id,
            name=name,
            effect_class=effect_class.value,
            fingerprint=fingerprint,
            idempotency_key=effect_id,
            arguments=arguments,
        )
        self._stage(event, self._entered.event_id, effect_id)
        await self._journal.commit()

    async def _repeat(self, name: str, effect_id: str, effect_class: SideEffectClass) -> None:
        if effect_class is not SideEffectClass.EXTERNAL:
            return
        reason = "the process died between the call and its record"
        self._stage(
            EffectOutcomeUnknown(run_id=self._run_id, effect_id=effect_id, reason=reason),
            self._history.requested[effect_id].event_id,
        )
        await self._journal.commit()
        raise _unknown(name, effect_id, reason)

    async def _perform(
        self,
        effect_id: str,
        effect_class: SideEffectClass,
        call: Callable[[], Any],
        timeout: timedelta | None,
    ) -> Any:
        cause = self._history.requested[effect_id].event_id
        begun = self._clock.monotonic()
        # What may have been done outside, and must not be done again: not plainly failed.
        perhaps = None
        limit = asyncio.timeout(timeout.total_seconds() if timeout else None)
        try:
            async with limit:
                value = await call() if inspect.iscoroutinefunction(call) else await asyncio.to_thread(call)
            perhaps = "it was done, and its result cannot be recorded"
            result = to_json(value, "result")
        except Exception as error:
            if limit.expired():
                perhaps = f"it had not ended after {timeout}"
            if perhaps is not None and effect_class is SideEffectClass.EXTERNAL:
                self._stage(
                    EffectOutcomeUnknown(run_id=self._run_id, effect_id=effect_id, reason=perhaps), cause
                )
            else:
                failed = EffectFailed(
                    run_id=self._run_id,
                    effect_id=effect_id,
                    error_type=type(error).__name__,
                    message=brief(error),
                    duration_ms=self._since(begun),
                )
                self._stage(failed, cause)
            await self._journal.commit()
            raise
        done = EffectCompleted(
            run_id=self._run_id, effect_id=effect_id, result=result, duration_ms=self._since(begun)
        )
        self._stage(done, cause)
        # On its way at once: the node may go on for hours, and only the record says that it was done.
        self._journal.flush()
        return result

    async def signal(self, name: str) -> Any:
        """Wait for the next signal of this name to this run and return its value.

        Signals are counted within a node: the first call takes the first signal that came, and so on.
        """
        return await self._journal.signal(name, self._occurrence(f"signal:{name}"))

    def check_complete(self) -> None:
        """Compare what this step did with what the log says of its earlier execution.

        A node that failed before may take another way the next time, and so may one whose effect failed and
        is tried again; then there is nothing to compare.

        Raises:
            ReplayDivergenceError: a recorded call was not made this time.
        """
        if self._again or self._history.failures[self.key]:
            return
        for call_id, event in [*self._history.invoked.items(), *self._history.requested.items()]:
            mine = event.causation_id == self._entered.event_id
            fingerprint = event.payload.get("fingerprint", call_id)
            if mine and fingerprint not in self._called:
                what = event.payload.get("capability_id") or event.payload.get("name")
                raise ReplayDivergenceError(
                    f"run {self._run_id}, step {self.key[0]}, node {self.node}: the log records a call of "
                    f"{what} that this execution did not make.",
                    hint="The node's code or its input differs from the recorded execution.",
                )

    def _call_id(self, kind: str, name: str, arguments: Any) -> str:
        content = hashlib.sha256(canonical_json(arguments)).hexdigest()
        occurrence = self._occurrence(f"{kind}:{name}:{content}")
        call_id = derived_id(self._run_id, *self._path(), kind, name, content, str(occurrence))
        self._called.add(call_id)
        return call_id

    def _occurrence(self, what: str) -> int:
        index = self._seen[what]
        self._seen[what] += 1
        return index

    def _path(self) -> tuple[str, str]:
        return str(self.key[0]), self.key[1]

    def _key(self, last: str) -> str:
        return "/".join((self._run_id, *self._path(), last))

    def _span(self) -> TraceContext:
        return self._entered.trace.child(self._clock.token(8))

    def _stage(self, event: DomainEvent, cause: str, key: str | None = None) -> EventEnvelope:
        return self._journal.stage(event, trace=self._span(), causation_id=cause, idempotency_key=key)

    def _since(self, begun: float) -> int:
        return max(0, round((self._clock.monotonic() - begun) * 1000))


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False  # a builtin that does not tell its parameters


def _unknown(name: str, effect_id: str, reason: str) -> NodeExecutionError:
    return NodeExecutionError(
        f"The outcome of the effect {name} ({effect_id}) is unknown: {reason}, and it is not idempotent.",
        hint="It is not called again. Find out whether it was done; then start a new run (under another "
        "idempotency key) for what is left. Effects that may be repeated are declared as idempotent.",
    )
