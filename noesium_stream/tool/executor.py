"""`ToolExecutor`: the one way in which a tool of any origin is called (RFC-2003 §7, RFC-2004).

A call is an effect of its step: its intent is on the log before it is made, its outcome afterwards, both
with the events that tell of it. So a call of unknown outcome waits for a person, one that is safe to repeat
is repeated under the same key, and a replay calls nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from noesium_stream.clock import derived_id
from noesium_stream.errors import (
    EffectFailedError,
    OutcomeUnknownError,
    StateError,
    ToolError,
    ToolExecutionError,
    ToolNotFoundError,
    ToolTimeoutError,
    brief,
)
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.event.trust.grants import grant_in
from noesium_stream.event.trust.policy import Policy
from noesium_stream.kernel.retry import Retries
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.state.typed_json import said_of
from noesium_stream.kernel.step.call_progress import CallProgress
from noesium_stream.kernel.step.effect import Effect, as_it_is
from noesium_stream.kernel.step.effect_call import in_thread
from noesium_stream.kernel.step.effects import Effects
from noesium_stream.kernel.step.position import Place, this_step
from noesium_stream.kernel.step.serving import serving
from noesium_stream.tool.atomic import MAX_TIMEOUT_MS, AtomicTool
from noesium_stream.tool.bounds import Bounds
from noesium_stream.tool.call_state import ToolCall
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.gate import Accepted, CallGate
from noesium_stream.tool.inner_calls import answer_of, arguments_of, recorded_tool, tool_named
from noesium_stream.tool.judge import ToolRules, rules_for
from noesium_stream.tool.leg_calls import finish
from noesium_stream.tool.legs import (
    CallRequired,
    TaskStarted,
    Unfinished,
    class_of_leg,
    has_legs,
    leg_record,
    resumable,
)
from noesium_stream.tool.redact import redacted

SetAside = Callable[[Any], Awaitable[Any]]
"""Puts a large result away, and returns what stands for it."""


async def _as_it_is(value: Any) -> Any:
    return value


def _any_definition(tool: AtomicTool) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Service:
    """What serves a call in place of the tool's own function and input schema.

    Attributes:
        call: makes the call with these arguments; what it returns has a JSON form and is recorded as it is.
        check: raises `ToolInputError` for arguments that are not valid.
    """

    call: Callable[[dict[str, Any]], Awaitable[Any]]
    check: Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class ToolExecutor:
    """Calls the tools of one agent.

    Attributes:
        agent_type: the agent.
        working_directory: its workspace.
        mode: the most that it may do (see `Mode`); None: `act`, or what the policy says.
        permissions: what its class grants at most; None: what the policy grants.
        policy: of this process; None: the class's own permissions count.
        accepted: whether a tool's definition is the one that is in force.
        set_aside: puts large results away.
        bounds: how many calls are made at the same time.
        ask_before: tools that mode `act` asks about though they are safe to repeat.
    """

    agent_type: str
    working_directory: Path
    mode: str | None = None
    permissions: tuple[str, ...] | None = None
    policy: Policy | None = None
    accepted: Accepted = _any_definition
    set_aside: SetAside = _as_it_is
    bounds: Bounds = field(default_factory=Bounds)
    ask_before: tuple[str, ...] = ()

    async def run(self, tool: AtomicTool, context: ToolContext | None = None, /, **arguments: Any) -> Any:
        """Have a tool called in the current step (RFC-2004); raises as `Step.tool`.

        Args:
            tool: the tool.
            context: narrows the call: its time limit counts if it is shorter than the tool's, and so do its
                permissions; None: the agent's own.
            arguments: those of the tool, by name.
        """
        return await self.call(this_step(), tool, arguments, context=context)

    async def call(
        self,
        place: Place,
        tool: AtomicTool,
        arguments: Mapping[str, Any],
        *,
        key: str | None = None,
        context: ToolContext | None = None,
        service: Service | None = None,
    ) -> Any:
        """Have a tool called in a step; raises as `Step.tool`.

        Args:
            place: the step.
            tool: the tool.
            arguments: those of the tool, by name.
            key: tells equal calls of a step apart, such as the id that a model gave; None: their order does.
            context: as in `run`.
            service: serves the call in place of the tool itself.
        """
        call = _call_of(place, tool, arguments, context, None if service is None else service.check)
        return await self._called(place, call, key=key, context=context, service=service)

    async def _called(
        self,
        place: Place,
        call: ToolCall,
        *,
        key: str | None,
        context: ToolContext | None,
        service: Service | None = None,
    ) -> Any:
        tool = call.tool
        identity = {"arguments": call.shown} if key is None else {"arguments": call.shown, "key": key}
        rules = partial(self._rules, place, context)
        retries = None
        if tool.max_retries and tool.side_effect_class is not SideEffectClass.EXTERNAL:
            retries = Retries(max_attempts=1 + tool.max_retries, non_retryable=(ToolTimeoutError,))
        call.in_legs = has_legs(tool) and service is None
        result = await Effects(place, leg_record if call.in_legs else as_it_is).perform_tool(
            tool.name,
            identity,
            lambda call_id: self._made(place, call, call_id, service),
            call,
            lambda effect: self._gate(place, effect, call, rules),
            effect_class=tool.side_effect_class,
            timeout=timedelta(milliseconds=call.limit_ms),
            retries=retries,
        )
        return await self._finished(place, call, result, context) if call.in_legs else result

    def _gate(self, place: Place, effect: Effect, call: ToolCall, rules: Callable[[], ToolRules]) -> CallGate:
        call.base = effect.base
        return CallGate(place, effect, call, rules, self.accepted, self.bounds, self._context)

    async def _finished(
        self, place: Place, call: ToolCall, record: Mapping[str, Any], context: ToolContext | None
    ) -> Any:
        """The result of a call that may have more legs; tells its end, if that was not told with leg 0."""
        begun = place.clock.monotonic()
        call_tool = partial(self._call_other, place, call, context)
        try:
            value = await finish(place, call, record, partial(self._leg, place, call), call_tool)
        except (ToolError, EffectFailedError) as error:
            said = type(error).__name__, brief(error)
            _tell_end(place, call, lambda call_id: call.failed(call_id, *said, place.since(begun)))
            raise
        _tell_end(place, call, lambda call_id: call.completed(call_id, leg_record(value), place.since(begun)))
        return value

    async def _leg(
        self,
        place: Place,
        call: ToolCall,
        number: int,
        unfinished: Unfinished,
        responses: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        tool, server = call.tool, resumable(call.tool)
        limit_ms = MAX_TIMEOUT_MS if isinstance(unfinished, TaskStarted) else tool.timeout_ms

        async def leg(_: Any, *, idempotency_key: str) -> Any:
            if server is None:
                raise ToolError(f"The tool {tool.name} cannot go on with a call.")
            context = self._context(place, call, idempotency_key, limit_ms)
            value = await server.resume(dict(call.arguments), context, unfinished, responses)
            return await self._record(tool, value)

        said: dict[str, Any] = {"call": call.base, "leg": number}
        if not isinstance(unfinished, CallRequired):  # the answers of other tools are on the log already
            said["responses"] = responses
        record: dict[str, Any] = await Effects(place, leg_record).perform(
            f"{tool.name} (continued)",
            leg,
            said,
            effect_class=class_of_leg(tool, unfinished),
            timeout=timedelta(milliseconds=limit_ms),
        )
        return record

    async def _call_other(
        self, place: Place, call: ToolCall, context: ToolContext | None, number: int, wanted: CallRequired
    ) -> dict[str, Any]:
        """Have another tool of the agent called for a call of this one, and return its answer."""
        other: ToolCall | None = None
        key = f"{call.base}/{number}"
        try:
            other = _call_of(place, *_other_tool(place, call.tool, wanted, key), context)
            return {"value": await self._called(place, other, key=key, context=context)}
        except Exception as error:
            # A failure that is not on the log may be another one the next time, and so is no answer.
            recorded = other is None or derived_id(other.base, "0") in place.history.outcomes
            answer = answer_of(error) if recorded else None
            if answer is None:
                raise
            return answer

    def _rules(self, place: Place, context: ToolContext | None) -> ToolRules:
        started = place.history.started
        grant = None if started is None else grant_in(started.payload)
        rules = rules_for(self.policy, self.agent_type, self.permissions, self.mode, grant, self.ask_before)
        narrower = context is not None and context.granted_permissions
        return rules.narrowed(narrower) if narrower else rules

    async def _made(
        self,
        place: Place,
        call: ToolCall,
        call_id: str,
        service: Service | None,
    ) -> Any:
        tool, arguments = call.tool, dict(call.arguments)
        with serving(call_id):
            if service is not None:
                return _json_of(tool, await service.call(arguments))
            value = await _served(tool, arguments, self._context(place, call, call_id, call.limit_ms), place)
        return await (self._record(tool, value) if call.in_legs else self._recordable(tool, value))

    def _context(self, place: Place, call: ToolCall, call_id: str, limit_ms: int) -> ToolContext:
        return ToolContext(
            agent_id=place.journal.identity.agent.agent_id,
            working_directory=self.working_directory,
            granted_permissions=call.granted,
            timeout_ms=limit_ms,
            run_id=place.run_id,
            call_id=call_id,
            trace=place.entered.trace,
            mode=call.mode,
            progress=CallProgress(place, call.tool.name, call_id).tell,
        )

    async def _record(self, tool: AtomicTool, value: Any) -> dict[str, Any]:
        """The record of a leg: of what it leaves unfinished, or of a result."""
        unfinished = isinstance(value, Unfinished)
        return leg_record(value if unfinished else await self._recordable(tool, value))

    async def _recordable(self, tool: AtomicTool, value: Any) -> Any:
        """A result in the form in which it is recorded: without secrets, a large one set aside or `whole`."""
        result = _json_of(tool, value, checked=True)
        try:
            shown = redacted(result, tool.output_schema)
            return shown if tool.whole else await self.set_aside(shown)
        except ToolError as error:
            if tool.side_effect_class is SideEffectClass.EXTERNAL:
                raise OutcomeUnknownError(f"it was done, and its result is lost: {error.message}") from error
            raise


def _json_of(tool: AtomicTool, value: Any, *, checked: bool = False) -> Any:
    """A result as JSON; `checked`: by the output schema, too."""
    try:
        with said_of(f"The tool {tool.name}"):
            result = to_json(value, "result")
        if checked:
            tool.check_output(result)
    except (StateError, ToolExecutionError) as error:
        if tool.side_effect_class is SideEffectClass.EXTERNAL:
            raise OutcomeUnknownError(
                f"it was done, and its result is not what the tool promises: {error.message}"
            ) from error
        raise
    return result


def _tell_end(place: Place, call: ToolCall, make: Callable[[str], DomainEvent | None]) -> None:
    """Stage the end of a call whose last leg has ended, if its first leg was not its end."""
    call_id = call.goes_on
    if call_id is None or not place.history.tools.lacks(call_id, "tool.completed"):
        return
    event = make(call_id)
    if event is not None:
        place.stage(event, place.history.requested[call_id].event_id, derived_id(call_id, "told"))


def _call_of(
    place: Place,
    tool: AtomicTool,
    arguments: Mapping[str, Any],
    context: ToolContext | None,
    check: Callable[[dict[str, Any]], None] | None = None,
) -> ToolCall:
    with said_of(f"The tool {tool.name}"):
        given: dict[str, Any] = to_json(dict(arguments), "arguments")
    return ToolCall(tool, place.run_id, given, None if context is None else context.timeout_ms, check=check)


def _other_tool(
    place: Place, caller: AtomicTool, wanted: CallRequired, key: str
) -> tuple[AtomicTool, dict[str, Any]]:
    """The tool that is called for another one, and its arguments."""
    run = current_run()
    tools = None if run is None else run.toolbox
    try:
        tool = tool_named(wanted.name, tools if isinstance(tools, Iterable) else (), caller)
    except ToolNotFoundError:
        arguments = dict(wanted.named)
        replays = place.journal.limits is None
        found = recorded_tool(place, wanted.name, {"arguments": arguments, "key": key}) if replays else None
        if found is None:
            raise
        return found, arguments
    return tool, arguments_of(wanted, tool)


async def _served(tool: AtomicTool, arguments: dict[str, Any], context: ToolContext, place: Place) -> Any:
    function = tool.function
    if function is None:
        raise ToolError(f"The tool {tool.name} is only a definition here; nothing serves it.")
    if inspect.iscoroutinefunction(function):
        return await function(arguments, context)
    value = await in_thread(partial(function, arguments, context), place.journal.activity)
    return await value if inspect.isawaitable(value) else value
