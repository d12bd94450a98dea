"""Calls of other agents from a node, by events alone (RFC-0005, RFC-1001 §10.3 and §12.1).

A capability and a tool are called in the same way; the kind of a call decides which pair of events carries
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from noesium_stream.clock import derived_id
from noesium_stream.errors import CapabilityError, StateError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.agent_calls import capability_call, output_of, tool_call, tool_capability_id
from noesium_stream.event.standard import CapabilityUnresolved, Grant, ReplyTo
from noesium_stream.event.trust.grants import grant_in, narrowed
from noesium_stream.kernel.journal import Destination
from noesium_stream.kernel.state.typed_json import check_size, said_of
from noesium_stream.kernel.step.position import Place


class _Call(NamedTuple):
    """A request and its provider; `kind` is part of the call's id, `event` makes its event.

    `roles` and `scopes`: those of the run's grant that the call hands on; None: all.
    """

    kind: str
    capability_id: str
    version: str | None
    event: Callable[[Mapping[str, Any], dict[str, Any]], DomainEvent]
    roles: Collection[str] | None = None
    scopes: Collection[str] | None = None


class Delegation:
    """A step's calls of other agents."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def invoke(
        self,
        capability_id: str,
        arguments: Mapping[str, Any],
        *,
        version: str | None = None,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
    ) -> Any:
        """See `Step.invoke`."""
        call = _Call("invoke", capability_id, version, capability_call, roles, scopes)
        return await self._ask(call, arguments)

    async def call_tool(
        self, toolkit: str, tool: str, arguments: Mapping[str, Any], *, version: str | None = None
    ) -> Any:
        """See `Step.call_tool`."""
        capability_id = tool_capability_id(toolkit, tool)
        call = _Call("tool", capability_id, version, partial(tool_call, toolkit, tool))
        return await self._ask(call, arguments)

    async def _ask(self, call: _Call, arguments: Mapping[str, Any]) -> Any:
        capability_id = call.capability_id
        with said_of(f"The call of {capability_id}"):
            sent = to_json(arguments, "arguments")
        if not isinstance(sent, dict):
            raise StateError(
                f"The call of {capability_id} has {type(sent).__name__} as its arguments.",
                hint="Give a mapping: the arguments by their names.",
            )
        check_size(sent, "arguments", f"The call of {capability_id}")
        grant = self._grant(call)
        base = self._place.call_id(call.kind, capability_id, sent)
        await self._place.before_call(base, f"another call of {capability_id}")
        call_id = self._call_to_make(base)
        if call_id not in self._place.history.invoked:
            await self._send(call_id, call, sent, grant)
        history = self._place.history
        await self._place.journal.until(lambda: call_id in history.answered)
        answer = history.answered[call_id].payload
        if answer.get("error") is not None:
            raise CapabilityError(
                f"{capability_id} failed at {answer['provider_agent_id']}: {answer['error']}"
            )
        return output_of(answer)

    def _call_to_make(self, base: str) -> str:
        """The id of a call in this attempt: that of an earlier attempt, unless its answer was an error. A
        call with an error is made anew, once per attempt: else no retry could ever help.
        """
        call_id = base
        for attempt in range(1, self._place.attempt + 1):
            made = base if attempt == 1 else derived_id(base, str(attempt))
            if made not in self._place.history.invoked:
                call_id = made
                continue
            answer = self._place.history.answered.get(made)
            if attempt == self._place.attempt or answer is None or answer.payload.get("error") is None:
                return made
        return call_id

    def _grant(self, call: _Call) -> Grant | None:
        """What the called run may act with: the run's own grant, or the part of it that the call hands on."""
        started = self._place.journal.history.started
        own = None if started is None else grant_in(started.payload)
        return None if own is None else narrowed(own, call.roles, call.scopes)

    async def _send(self, call_id: str, call: _Call, sent: dict[str, Any], grant: Grant | None) -> None:
        journal, run_id = self._place.journal, self._place.run_id
        try:
            provider = await journal.resolve(call.capability_id, call.version)
        except CapabilityError:
            unresolved = CapabilityUnresolved(
                run_id=run_id, call_id=call_id, capability_id=call.capability_id, version_range=call.version
            )
            self._place.stage(unresolved)
            raise
        self._place.check_open()  # it has waited for its provider
        identity = journal.identity
        shared = {
            "run_id": call_id,
            "capability_id": provider.capability_id,
            "version": provider.version,
            "caller_agent_id": identity.agent.agent_id,
            "caller_run_id": run_id,
            "target_agent_id": provider.agent_id,
            "target_agent_type": provider.agent_type,
            "registry_offset": provider.registry_offset,
            "deadline_ms": journal.history.deadline_ms,
            "grant": grant,
            "reply_to": ReplyTo(agent_type=identity.agent.agent_type, run_id=run_id, call_id=call_id),
        }
        journal.stage(
            call.event(shared, sent),
            trace=self._place.span(),
            causation_id=self._place.entered.event_id,
            idempotency_key=call_id,
            to=Destination(provider.agent_type, call_id),
        )
        await journal.commit()
