"""`Step`: the interface of a node's code to calls, effects, time and ids.

All requests go through the run's journal. A second execution of the same node (after a crash) finds the
actions of the first one there and does not repeat them (law 5).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from noesium_stream.clock import to_datetime
from noesium_stream.config import ExecutionMode
from noesium_stream.durations import Duration
from noesium_stream.errors import (
    KernelError,
    StrictModeError,
)
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.rules.attributes import (
    AttributeValue,
    check_count,
    checked_attributes,
    with_attributes,
)
from noesium_stream.event.standard import AttributesSet, SideEffectClass
from noesium_stream.kernel.callable_reference import Undo
from noesium_stream.kernel.modes import current_mode
from noesium_stream.kernel.retry import Retries
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.step.answer import Answer
from noesium_stream.kernel.step.delegation import Delegation
from noesium_stream.kernel.step.effects import Effects
from noesium_stream.kernel.step.foreign import Foreign, is_foreign
from noesium_stream.kernel.step.invocation import OnUnresolved
from noesium_stream.kernel.step.pieces import pieces_of
from noesium_stream.kernel.step.piecewise import PiecewiseAnswer
from noesium_stream.kernel.step.position import Place, this_step
from noesium_stream.kernel.step.waits import Signal, Waits

T = TypeVar("T")


def current_step() -> Step:
    """The step of the calling node.

    Raises:
        KernelError: called outside a node, or in a thread that the node started by itself.
    """
    place = this_step()
    if place.facade is None:
        place.facade = Step(place)
    step: Step = place.facade
    return step


def require_effects(node: str, name: str) -> None:
    """Refuse a direct effect in STRICT mode.

    Raises:
        StrictModeError: names the node, and what it would have called.
    """
    if current_mode() is ExecutionMode.STRICT:
        raise StrictModeError(
            f"The node {node} calls {name} by itself, which STRICT mode does not allow.",
            hint="Let another agent do it: offer it there as a tool (agent_from_tools) and call it with "
            "step.call_tool, or as a capability and call it with step.invoke.",
        )


class Step:
    """One execution of one node of one run, in the view of its body."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def node(self) -> str:
        """The node's name in its graph."""
        return self._place.node

    @property
    def run_id(self) -> str:
        """The id of this step's run."""
        return self._place.run_id

    def now(self) -> datetime:
        """The time at which this node was first entered, UTC: the same on every execution."""
        return to_datetime(self._place.entered.timestamp_ms)

    def uuid(self) -> str:
        """A new id, the same on every execution of this node."""
        return self._place.uuid()

    def random(self) -> float:
        """A number in [0, 1), the same on every execution of this node."""
        if self._place.random is None:
            self._place.random = random.Random(self._place.derived("random"))
        return self._place.random.random()

    def emit(self, event: DomainEvent) -> None:
        """Put a domain event into the step's commit; equivalent to returning it in `_pending_events`."""
        self._place.emitted.append(event)

    def set_attributes(
        self, attributes: Mapping[str, AttributeValue] | None = None, **named: AttributeValue
    ) -> None:
        """Say what the run is about, so that people find it: the event is a part of the step's commit.

            step.set_attributes(customer=7, region="north")

        `noesium runs --where 'customer = 7'` and `Client.list_runs(where=...)` select by it. Values are
        texts, numbers, booleans and aware datetimes; None takes an attribute away, others stay as they are.

        Raises:
            ConfigError: a name or a value is none, or the run would have over 50 attributes.
        """
        changes = checked_attributes({**(attributes or {}), **named})
        if not changes:
            return
        known = self._place.history.attributes
        for event in self._place.emitted:
            if isinstance(event, AttributesSet):
                known = with_attributes(known, event.payload()["attributes"])
        check_count(known, changes)
        self._place.emitted.append(AttributesSet(attributes=changes))

    async def write(self, piece: Any) -> None:
        """Write a piece of the answer for whoever watches the run (RFC-0002, streaming): any JSON value.

            async for token in model.astream(prompt):
                await step.write(token.text)

        `Run.pieces` and `noesium run` show it within 100 ms. Pieces are not durable, and no effect: only what
        the node returns is the answer. A node that is executed again writes its pieces again, and readers are
        told so. While the log takes none, pieces are lost and the run goes on. In a replay nothing is
        written. Chunks of LangGraph's `get_stream_writer()` are pieces as well.

        Raises:
            StateError: it has no JSON form.
            RecordTooLargeError: it has more than 64 KB as JSON.
            KernelError: the node has ended.
        """
        await pieces_of(self._place).write(piece)

    async def invoke(
        self,
        capability_id: str,
        arguments: Mapping[str, Any],
        *,
        version: str | None = None,
        deadline: Duration | datetime | None = None,
        on_unresolved: OnUnresolved = "wait",
        allow_cycle: bool = False,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        permissions: Collection[str] | None = None,
        mode: str | None = None,
        side_effects: SideEffectClass | None = None,
    ) -> Any:
        """Delegate to a provider of `capability_id` and wait for the answer (RFC-0005, RFC-1001 §10.3).

        The chosen provider is recorded with the call; a second execution takes the same one and waits for the
        same answer. Arguments and result are judged by the schemas that the provider has registered, here and
        there. If the provider has not begun, or if the capability is pure or idempotent, another provider is
        tried after an error. The called run acts with this run's grant: with all of its roles and scopes, or
        with those that are given here.

        An id `a2a:https://HOST/PATH#SKILL` calls an agent of another system by A2A, as an effect of the class
        `side_effects` (default: external), with everything that `effect` says of these; `deadline` is its
        timeout. Its host has to be one of the setting `a2a_allow`. Grants do not reach it.

        Args:
            capability_id: what is called.
            arguments: the input of the provider's run, by name.
            version: a range of versions, such as `^1`; None: any.
            deadline: a duration from now, or a moment: nobody waits longer, and the called run ends then. It
                ends with its caller's own deadline, too.
            on_unresolved: "wait": if nobody offers it the run waits, on the log and without a slot, until
                somebody does (`noesium show` says so). "fail": it fails at once.
            allow_cycle: whether the call may lead back to an agent that waits for it.
            roles: those of the run's grant that the call hands on; None: all.
            scopes: the same for scopes.
            permissions: limits of the tools of the called run, as in `Client.start`; None: this run's.
            mode: the same for the mode.
            side_effects: what a second call of an `a2a:` id does.

        Raises:
            CapabilityNotFoundError: with "fail": there is no provider in this version range; `considered`
                says why each offer was not taken.
            CapabilityInputError: the provider does not take these arguments; nothing was sent.
            CapabilityOutputError: the result is not what the capability promises.
            CallLimitError: the call leads back to a calling agent, is too deep, or one too many of its run.
            DeadlineExceededError: there was no answer by `deadline`.
            PermissionDeniedError: the run has not all of these roles, scopes and permissions itself.
            CapabilityError: the provider answered with an error.
        """
        if is_foreign(capability_id):
            require_effects(self.node, capability_id)
            return await Foreign(self._place).invoke(
                capability_id,
                arguments,
                version=version,
                side_effects=side_effects,
                timeout=deadline - self.now() if isinstance(deadline, datetime) else deadline,
            )
        return await Delegation(self._place).invoke(
            capability_id,
            arguments,
            version=version,
            deadline=deadline,
            on_unresolved=on_unresolved,
            allow_cycle=allow_cycle,
            roles=roles,
            scopes=scopes,
            permissions=permissions,
            mode=mode,
        )

    def invoke_stream(
        self, capability_id: str, arguments: Mapping[str, Any], **options: Any
    ) -> PiecewiseAnswer:
        """Delegate as `invoke` does, and read the answer in pieces as the provider writes them.

            answer = step.invoke_stream("text.write", {"about": "rain"}, version="^1")
            async for piece in answer:
                await step.write(piece.data)
            text = await answer.result()

        Pieces are for passing on and showing: some may be lost, and if the answer is on the log already (a
        replay, another execution of this node) there are none. What the node keeps, and what it decides by,
        comes from `result()` alone. `Piece.restarted` says that what came of a node before is void; another
        provider that is tried begins with it, too. `options` are those of `invoke`.
        """
        return PiecewiseAnswer(self._place, partial(self.invoke, capability_id, arguments, **options))

    async def invoke_many(
        self,
        capability_id: str,
        arguments: Iterable[Mapping[str, Any]],
        *,
        limit: int = 50,
        return_exceptions: bool = False,
        **options: Any,
    ) -> list[Any]:
        """Make many calls of one capability, at most `limit` at the same time; results in the order of calls.

            prices = await step.invoke_many("price.find", [{"item": item} for item in items], limit=20)

        Every call is made, also after one has failed: a second execution must find the same calls. Then the
        first failure in the order of calls is raised; with `return_exceptions` failures are in the list.
        `options` are those of `invoke`, for each call.
        """
        calls = (partial(self.invoke, capability_id, one, **options) for one in arguments)
        return await Delegation(self._place).invoke_many(
            calls, limit=limit, return_exceptions=return_exceptions
        )

    async def call_tool(
        self,
        toolkit: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str | None = None,
        deadline: Duration | datetime | None = None,
        on_unresolved: OnUnresolved = "wait",
        allow_cycle: bool = False,
    ) -> Any:
        """Have another agent call a tool, and wait for its result (RFC-1001 §12.1): by event, in every mode.

            price = await step.call_tool("shop", "price", {"item": "bread"})

        The call goes to a provider of `tool.TOOLKIT.TOOL` (see `agent_from_tools`), as
        `tool.invocation.requested`; the answer is `tool.invocation.completed`. Everything else is as with
        `invoke`: the chosen provider is recorded with the call, and its one answer counts on every execution.

        Raises:
            ConfigError: a name is not valid for a toolkit or a tool.
            StateError: the arguments have no JSON form.
            CapabilityError, DeadlineExceededError: as with `invoke`.
        """
        return await Delegation(self._place).call_tool(
            toolkit,
            tool,
            arguments or {},
            version=version,
            deadline=deadline,
            on_unresolved=on_unresolved,
            allow_cycle=allow_cycle,
        )

    async def tool(self, name: str, /, **arguments: Any) -> Any:
        """Have one of the agent's tools called, once, and wait for its result (RFC-2003 §7, RFC-2004).

            receipt = await step.tool("refund", order=4711, cents=1250)

        The agent names its tools in `tools`, of whatever origin. Permissions and arguments are judged first;
        a person is asked if the policy says so. The call is an effect of the tool's class: see `effect` for
        crashes, retries and unknown outcomes. `noesium show` tells of it.

        Raises:
            ToolNotFoundError: the agent has no such tool.
            ToolPermissionError: the call is refused; nothing was called.
            ToolInputError: the tool does not take these arguments; nothing was called.
            ToolTimeoutError: a pure or idempotent tool had not ended within its time limit.
            EffectFailedError: a person has decided that it failed.
            StrictModeError: in STRICT mode, where tools are left to other agents.
            Exception: the tool's own error, after it is recorded.
        """
        require_effects(self.node, name)
        run = current_run()
        if run is None or run.toolbox is None:
            raise KernelError(
                f"The node {self.node} calls the tool {name}, and its agent names no tools.",
                hint="Name them in the agent's class attribute `tools`.",
            )
        return await run.toolbox.call(self._place, name, arguments)

    async def request_task(
        self,
        capability_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        deadline: Duration | datetime | None = None,
        allow_cycle: bool = False,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        permissions: Collection[str] | None = None,
        mode: str | None = None,
    ) -> Any:
        """Leave a task to whoever is free, and wait for its result (RFC-0001): by event, in every mode.

            small = await step.request_task("image.resize", {"image": name, "width": 400})

        The task goes to the topic of the capability. One subscriber takes it: a worker of an agent that names
        the capability in its `tasks`, of whatever agent type. Nobody is chosen, nobody has to be there: the
        task waits in its topic for two weeks at most. Everything else is as with `invoke`: a second execution
        waits for the same answer, and the run waits on the log and without a slot.

        Args:
            capability_id: what is to be done.
            arguments: the input of the run that does it, by name; that run's agent judges it.
            deadline: as in `invoke`. A task that nobody has taken by then is not begun.
            allow_cycle: as in `invoke`.
            roles: as in `invoke`.
            scopes: as in `invoke`.
            permissions: as in `invoke`.
            mode: as in `invoke`.

        Raises:
            ConfigError: the capability's id makes no topic name.
            StateError: the arguments have no JSON form.
            CapabilityError, DeadlineExceededError, PermissionDeniedError: as with `invoke`.
        """
        return await Delegation(self._place).request_task(
            capability_id,
            arguments or {},
            deadline=deadline,
            allow_cycle=allow_cycle,
            roles=roles,
            scopes=scopes,
            permissions=permissions,
            mode=mode,
        )

    async def effect(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
        timeout: Duration | None = None,
        retries: Retries | None = None,
        compensate: Undo | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call something outside, once: intent on the log, the call, its result on the log (law 5).

        A function with a parameter `idempotency_key` receives the effect's key: the same text whenever this
        very call is repeated, another one after a recorded failure.

        `function` may be sync (it runs in a thread) or async. Arguments and result must have a JSON form. A
        second execution returns the recorded result. If only the intent is recorded, pure and idempotent
        effects are repeated under the same idempotency key. An external one is not: its outcome is recorded
        as unknown, and the node waits until a person has decided (`noesium effect resolve`,
        `Run.resolve_effect`). The same holds for an external one that did not end within `timeout`, or whose
        result has no JSON form. With a `timeout`, a process that takes the run over waits that long for a
        late report of the former owner's call, before the outcome is unknown.

        A failure is recorded. With `retries` the effect is retried by itself, after pauses that are on the
        log. Without `retries`, or after the last one, the node gets the error, and its next attempt calls
        again.

        `compensate` undoes it if the run fails or is cancelled afterwards: a function of a module or a
        method of the agent (no closure: another process must find it by its name), called outside any step
        with the recorded result, then the effect's own arguments, then `idempotency_key` if it has that
        parameter. It is an effect of its own, of the same class; one that fails waits for a person, after the
        retries of `kernel_compensation`. Or the name of a compiled graph, `module:NAME`, which is
        executed as a part of the run: it begins with `name`, `result`, `args` and `kwargs` of the effect as
        far as its state has them (of a node: its name, and the delta as `result`).

        Raises:
            EffectFailedError: a person has decided that it failed.
            StateError: arguments or result have no JSON form.
            StrictModeError: in STRICT mode, where effects are left to other agents.
            KernelError: `compensate` cannot be found by its name, or does not accept its arguments.
            Exception: the error of `function`, after it is recorded as `effect.failed`.
        """
        require_effects(self.node, name)
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

    def run_sync(self, call: Coroutine[Any, Any, T]) -> T:
        """Make one of this step's calls from a sync node, or from a thread, and wait for it there.

            answer = step.run_sync(step.effect("refund", pay_back, order))

        Raises:
            KernelError: called on the run's event loop, which must not be blocked; use `await` there.
            Exception: the error of the call.
        """
        run = current_run()
        if run is None or run.on_its_loop():
            call.close()
            raise KernelError(
                f"The node {self.node} waits for a call on the run's event loop.",
                hint="Use `await` in async nodes; `run_sync` is for sync nodes and for asyncio.to_thread.",
            )
        return asyncio.run_coroutine_threadsafe(call, run.loop).result()

    async def signal(self, name: str) -> Any:
        """Wait for the next signal of this name to this run and return its value.

        Signals are counted within a node: the first call takes the first signal that came, and so on. If it
        has not come yet, the wait is on the log, where `noesium runs` sees it.
        """
        return await Waits(self._place).signal(name)

    async def nth_signal(self, name: str, number: int) -> Signal:
        """Wait for a signal by its number among those of this name that the run has had, from 0 on.

            heard = await step.nth_signal("message", state["heard"])
            return {"heard": state["heard"] + 1, "text": heard.value}

        For a node that is entered again and again: the graph's state counts. Otherwise as `signal`.

        Raises:
            KernelError: the number is negative.
        """
        return await Waits(self._place).nth_signal(name, number)

    async def interrupt(
        self,
        question: Any,
        *,
        schema: Any = None,
        approvers: Sequence[str] | None = None,
        minimum: int | None = None,
        timeout: Duration | None = None,
        on_timeout: Any = None,
    ) -> Answer:
        """Ask a person and wait for the answer, in this process or any later one (RFC-0003 §12).

        `noesium approve` and `noesium reject` answer it, or the event `approval.answered` from any process.
        An answer is matched to the question's content and counted once. No earlier action is repeated, and
        other branches go on.

        Args:
            question: the question, any JSON value; it identifies the question.
            schema: the type of the answer's value: a pydantic model, a dataclass, a TypedDict or a JSON
                Schema. None accepts any value, and an answer without one.
            approvers: the names that may answer, and roles as `role:NAME`; None or empty: anyone.
            minimum: so many different people have to approve, with the same value; whoever asked for the run
                does not count. A rejection counts at once. None: the first answer counts, whose ever it is.
            timeout: how long to wait, from when it is first asked: a `timedelta`, or seconds.
            on_timeout: the answer if nobody answered by then: "approve", "reject" or "decline", as if from a
                person, or a value that the schema accepts. None: the node fails.

        Raises:
            ApprovalExpiredError: nobody answered in time, and there is no `on_timeout`.
            KernelError: `minimum` is more than the people who may approve.
            StateError: the question has no JSON form, the schema is not valid, or refuses `on_timeout`.
        """
        return await Waits(self._place).ask(
            question,
            schema=schema,
            approvers=approvers,
            minimum=minimum,
            timeout=timeout,
            on_timeout=on_timeout,
        )

    async def sleep(self, duration: Duration) -> None:
        """Wait for `duration` of the owner's clock, in this process or any later one, once only.

        A number is seconds. The duration is counted from when the log first heard of it; a replay does not
        wait. If the clock is set back, the process that waits still waits for `duration`; one that takes over
        meanwhile waits until the recorded moment, by its own clock.
        """
        await Waits(self._place).sleep(duration)

    async def sleep_until(self, moment: datetime) -> None:
        """As `sleep`, until an aware datetime, which has to be the same on every execution.

        Raises:
            ValueError: `moment` has no time zone.
        """
        await Waits(self._place).sleep_until(moment)
