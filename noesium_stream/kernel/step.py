"""What a node may do besides computing: call others, cause effects, ask for time and ids.

Everything goes through the run's journal, so that a second execution of the same node (after a crash)
finds what the first one did and does not do it again (law 5).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeVar

from noesium_stream.clock import to_datetime
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import (
    EventValidationError,
    KernelError,
    ReplayDivergenceError,
    StateError,
    StrictModeError,
    UnknownSchemaError,
)
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.answer import Answer
from noesium_stream.kernel.decorators import NodeMeta
from noesium_stream.kernel.delegation import Delegation
from noesium_stream.kernel.effects import Effects
from noesium_stream.kernel.guard import exempt
from noesium_stream.kernel.history import StepKey
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.modes import current_mode
from noesium_stream.kernel.place import Place
from noesium_stream.kernel.recordable import check_size
from noesium_stream.kernel.reference import Undo
from noesium_stream.kernel.retry import Retries
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.subcalls import Subcalls
from noesium_stream.kernel.waits import Waits

T = TypeVar("T")

_RESERVED = (
    "run.",
    "kernel.",
    "effect.",
    "capability.",
    "tool.invocation.",
    "command.",
    "partition.",
    "approval.",
    "timer.",
)

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


def enclosing_step() -> Step | None:
    """The step whose body the calling code belongs to; None outside."""
    return _CURRENT.get()


class Step:
    """One execution of one node of one run.

    Attributes:
        subcalls: the graphs that its body calls, for the executor.
    """

    def __init__(
        self,
        journal: RunJournal,
        node: str,
        key: StepKey,
        meta: NodeMeta,
        attempt: int,
        input_hash: str | None = None,
        call_hash: str | None = None,
    ) -> None:
        self._place = Place(journal, node, key, meta, attempt, input_hash, call_hash)
        self.subcalls = Subcalls(journal.history, key)
        self._events: list[DomainEvent] = []
        self._random: random.Random | None = None  # 2.5 kB, which most steps have no use for

    def activate(self) -> Any:
        """Make this the current step; give the result to `deactivate`."""
        self._place.journal.activity.enter(self, _CURRENT.get())
        return _CURRENT.set(self)

    def deactivate(self, token: Any) -> None:
        """Undo `activate`; the step makes no calls any more."""
        self._place.closed = True
        self._place.journal.activity.leave(self)
        _CURRENT.reset(token)

    def check_open(self) -> None:
        """See `Place.check_open`."""
        self._place.check_open()

    @property
    def has_ended(self) -> bool:
        """Whether it is over, one way or the other; what it has left running may be not."""
        return self._place.closed

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

    @property
    def journal(self) -> RunJournal:
        """The run's journal."""
        return self._place.journal

    @property
    def emitted(self) -> list[DomainEvent]:
        """What `emit` was given so far."""
        return self._events

    @property
    def reached_out(self) -> bool:
        """Whether the step has done more than compute: a call, an effect, a question, an event."""
        return bool(self._place.called or self._events)

    def begin_again(self) -> None:
        """The body is executed again from its first line, with an answer more."""
        self._place.begin_again()
        self.subcalls.begin_again()
        self._events.clear()
        self._random = None

    def now(self) -> datetime:
        """The time at which this node was first entered, UTC: the same on every execution."""
        return to_datetime(self._place.entered.timestamp_ms)

    def uuid(self) -> str:
        """A new id, the same on every execution of this node."""
        return self._place.derived("uuid", str(self._place.occurrence("uuid")))

    def random(self) -> float:
        """A number in [0, 1), the same on every execution of this node."""
        if self._random is None:
            self._random = random.Random(self._place.derived("random"))
        return self._random.random()

    def emit(self, event: DomainEvent) -> None:
        """Put a domain event into the step's commit; the same as returning it in `_pending_events`."""
        self._events.append(event)

    def stage_events(self, returned: Sequence[DomainEvent]) -> None:
        """Stage what was emitted, then what the node returned; a node that fails emits nothing.

        Raises:
            StateError: an event has a type that the kernel alone writes, or the log would refuse it: its type
                is not known there, or its payload is not as the type's schema wants it.
        """
        for index, event in enumerate([*self._events, *returned]):
            if event.event_type().startswith(_RESERVED):
                raise StateError(
                    f"The node {self.node} emits {event.event_type()}, which the kernel alone writes.",
                    hint="Give the event a domain of its own, such as `ticket.answered`.",
                )
            payload = event.payload()
            check_size(payload, event.event_type(), f"The node {self.node}")
            self._check_known(event, payload)
            self._place.stage(event, key=self._place.event_key(str(index)))

    def _check_known(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        try:
            self.journal.check(event, payload)
        except UnknownSchemaError as error:
            raise StateError(
                f"The node {self.node} emits {event.event_type()} {event.event_version()}, an event that is "
                f"not registered: {error.message}",
                hint=f"Name its class {type(event).__name__} in the agent's `events`.",
            ) from error
        except EventValidationError as error:
            raise StateError(
                f"The node {self.node} emits {event.event_type()}, which its schema refuses: {error.message}",
                hint=error.hint,
            ) from error

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
        return await Delegation(self._place).invoke(capability_id, arguments, version=version)

    async def call_tool(
        self,
        toolkit: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str | None = None,
    ) -> Any:
        """Have another agent call a tool, and wait for its result (RFC-1001 §12.1): by event, in every mode.

            price = await step.call_tool("shop", "price", {"item": "bread"})

        It goes to whoever offers `tool.TOOLKIT.TOOL` (see `agent_of_tools`), as `tool.invocation.requested`;
        the answer is `tool.invocation.completed`. All else is as with `invoke`: the provider that was chosen,
        recorded with the call, and the one answer of it count on every execution.

        Raises:
            ConfigError: a name cannot be that of a toolkit or a tool.
            CapabilityNotFoundError: nobody offers the tool in this version range.
            CapabilityError: the tool failed.
            StateError: the arguments have no JSON form.
        """
        return await Delegation(self._place).call_tool(toolkit, tool, arguments or {}, version=version)

    async def effect(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
        timeout: timedelta | None = None,
        retries: Retries | None = None,
        compensate: Undo | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call something outside, once: intent on the log, the call, its result on the log (law 5).

        A function with a parameter `idempotency_key` is given the effect's: the same text whenever this very
        call is made again, another one after a recorded failure.

        `function` may be sync (it runs in a thread) or async. Arguments and result must have a JSON form.
        A second execution returns the recorded result. If only the intent is recorded, pure and
        idempotent effects are done again under the same idempotency key; an external one is not: its
        outcome is unknown, which is recorded, and the node waits until a person has decided
        (`Run.resolve_effect`, `noesium effect resolve`). The same holds for an external one that did not end
        within `timeout`, or whose result has no JSON form. With a `timeout` a process that takes the run over
        waits so long for what the former one may still report of its call, before it is unknown.

        A failure is recorded. With `retries` the effect is tried again by itself, after pauses that are on
        the log; without, and after the last, the node gets the error, and its next attempt calls again.

        `compensate` undoes it, should the run fail or be cancelled after it: a function of a module or a
        method of the agent (no closure: another process must find it by its name), called outside any step
        with the recorded result, then the effect's own arguments, then `idempotency_key` if it has that
        parameter. It is an effect of its own, of the same class; one that fails waits for a person, after the
        retries that `kernel_compensation` says. Or the name of a compiled graph, `module:NAME`, that is
        executed as a part of the run: it begins with `name`, `result`, `args` and `kwargs` of the effect as
        far as its state has them (of a node: its name, and the delta as `result`).

        Raises:
            EffectFailedError: a person has decided that it failed.
            StateError: arguments or result have no JSON form.
            StrictModeError: in STRICT mode, where effects are left to other agents.
            KernelError: `compensate` cannot be found by its name, or cannot take what it will be given.
            Exception: what `function` raises, after it is recorded as `effect.failed`.
        """
        if current_mode() is ExecutionMode.STRICT:
            raise StrictModeError(
                f"The node {self.node} calls {name} by itself, which STRICT mode does not allow.",
                hint="Let another agent do it: offer it there as a tool (agent_of_tools) and call it with "
                "step.call_tool, or as a capability and call it with step.invoke.",
            )
        return await self.journaled(
            name,
            function,
            *args,
            effect_class=effect_class,
            timeout=timeout,
            retries=retries,
            compensate=compensate,
            **kwargs,
        )

    async def journaled(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
        timeout: timedelta | None = None,
        retries: Retries | None = None,
        compensate: Undo | None = None,
        **kwargs: Any,
    ) -> Any:
        """As `effect`, in every mode: for what this package itself offers to nodes, such as models."""
        with exempt():
            return await Effects(self._place).perform(
                name,
                function,
                *args,
                effect_class=effect_class,
                timeout=timeout,
                retries=retries,
                compensate=compensate,
                **kwargs,
            )

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Make one of this step's calls from a sync node, or from a thread, and wait for it there.

            answer = step.wait(step.effect("refund", pay_back, order))

        Raises:
            KernelError: called on the run's event loop, which must not be blocked; use `await` there.
            Exception: what the call raises.
        """
        run = current_run()
        if run is None or run.on_its_loop():
            call.close()
            raise KernelError(
                f"The node {self.node} waits for a call on the run's event loop.",
                hint="Use `await` in async nodes; `wait` is for sync nodes and for asyncio.to_thread.",
            )
        return asyncio.run_coroutine_threadsafe(call, run.loop).result()

    async def signal(self, name: str) -> Any:
        """Wait for the next signal of this name to this run and return its value.

        Signals are counted within a node: the first call takes the first signal that came, and so on.
        """
        self._place.check_open()
        history = self._place.history
        index = self._place.occurrence(f"signal:{name}")
        await self._place.journal.until(lambda: len(history.signals.get(name, ())) > index)
        return history.signals[name][index].payload.get("value")

    async def interrupt(
        self,
        question: Any,
        *,
        schema: Any = None,
        approvers: Sequence[str] | None = None,
        timeout: timedelta | None = None,
        on_timeout: Any = None,
    ) -> Answer:
        """Ask a person and wait for the answer, in this process or any later one (RFC-0003 §12).

        `noesium approve` and `noesium reject` answer it, or the event `approval.answered` from any process.
        An answer is matched to the question's content and counted once. Nothing that was done before is done
        again, and other branches go on.

        Args:
            question: what to ask; any JSON value. It is what identifies the question.
            schema: what the answer's value has to be: a pydantic model, a dataclass, a TypedDict or a JSON
                Schema. None takes any value, and an answer without one.
            approvers: the names that may answer; None or empty: anyone.
            timeout: how long to wait, from when it is first asked.
            on_timeout: what is taken when nobody answered by then: "approve", "reject" or "decline" as if a
                person had said so, or a value that the schema takes. None: the node fails.

        Raises:
            ApprovalExpiredError: nobody answered in time, and there is no `on_timeout`.
            StateError: the question has no JSON form, the schema is none, or refuses `on_timeout`.
        """
        return await Waits(self._place).ask(
            question, schema=schema, approvers=approvers, timeout=timeout, on_timeout=on_timeout
        )

    async def ask(self, question: Any, schema: Any = None) -> Any:
        """Ask as LangGraph's `interrupt` does, for the executor: the answer's plain value."""
        return await Waits(self._place).interrupt(question, schema)

    async def sleep(self, duration: timedelta) -> None:
        """Wait for `duration` of the owner's clock, in this process or any later one, and wait it once.

        It is counted from when the log first heard of it; a replay does not wait.
        """
        await Waits(self._place).sleep(duration)

    async def sleep_until(self, moment: datetime) -> None:
        """As `sleep`, until an aware datetime, which has to be the same on every execution.

        Raises:
            ValueError: `moment` has no time zone.
        """
        await Waits(self._place).sleep_until(moment)

    def check_complete(self) -> None:
        """Compare what this step did with what the log says of its earlier execution.

        Raises:
            ReplayDivergenceError: a recorded call was not made this time.
        """
        unmade = self._place.unmade()
        if unmade:
            self._place.refuse_divergence(unmade[0], "no such call")
        if self.subcalls.lost is not None:
            raise ReplayDivergenceError(
                f"run {self.run_id}, step {self.key[0]}, node {self.node}: the log records a call of a graph "
                f"that begins with {self.subcalls.lost}; this execution called it with another input.",
                hint="The node's code or its input differs from the recorded execution.",
            )
