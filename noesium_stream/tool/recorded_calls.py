"""The tool calls of a recorded run: where their arguments came from, and what a policy says of them.

Nothing is called, and no log is asked. The labels are folded anew from the run's events (see `provenance`),
so a run that was recorded before a rule existed is judged by it. Arguments are those on the log, without
secrets: a secret has every label that has reached its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from noesium_stream.errors import NoesiumError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.provenance import Provenance
from noesium_stream.event.standard import Grant, SideEffectClass
from noesium_stream.event.trust.agent_policy import ALL
from noesium_stream.event.trust.grants import grant_in
from noesium_stream.event.trust.policy import Policy
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.judge import ToolRules, judge, rules_for
from noesium_stream.tool.verdict import Allowed, Ask, Denied, Verdict

_BEGUN: Final = ("tool.invoked", "tool.denied")
_ENDED: Final = {
    "tool.completed": "completed",
    "tool.failed": "failed",
    "tool.timeout": "timed out",
}
_SAYS: Final = {Allowed: "allows", Ask: "asks", Denied: "refuses"}


@dataclass(slots=True)
class RecordedToolCall:
    """A tool call of a run.

    Attributes:
        call_id: its id.
        event_id: its `tool.invoked` or `tool.denied`.
        tool_name, tool_id: the tool.
        arguments: without secrets.
        outcome: `denied`, `completed`, `failed`, `timed out`, or `open`.
        labels: the provenance of the arguments, by name; those without labels are left out.
        result_labels: that of its result; empty: none, or it has no result.
        verdict: what the policy says; None: it was not asked.
    """

    call_id: str
    event_id: str
    tool_name: str
    tool_id: str
    arguments: dict[str, Any]
    outcome: str
    labels: Mapping[str, tuple[str, ...]]
    result_labels: tuple[str, ...] = ()
    verdict: Verdict | None = None

    @property
    def was_made(self) -> bool:
        """Whether it was begun; False: it was refused."""
        return self.outcome != "denied"

    @property
    def would_be_refused(self) -> bool:
        """Whether it was made, and the policy refuses it."""
        return self.was_made and isinstance(self.verdict, Denied)

    @property
    def says(self) -> str:
        """The verdict in one word: `allows`, `asks`, `refuses`; empty: there is none."""
        return "" if self.verdict is None else _SAYS[type(self.verdict)]


def recorded_tool_calls(
    events: Iterable[EventEnvelope], policy: Policy | None = None
) -> list[RecordedToolCall]:
    """The tool calls of a run, in order, each judged by a policy if one is given; pure.

    The needs of a call are those that were recorded with it. What the agent's class allows is not on the log:
    the policy alone is asked, with the limits of the run. Where the policy grants nothing itself, a call that
    was made has what it needed, and one that was refused has nothing.

    Args:
        events: all events of the run, in order.
        policy: the policy; None: nothing is judged.
    """
    found: dict[str, RecordedToolCall] = {}
    provenance, started = Provenance(), dict[str, Any]()
    for event in events:
        provenance.apply(event)
        payload = event.payload
        if event.event_type == "run.started" and not started:
            started = payload
        elif event.event_type in _BEGUN and payload.get("run_id") is not None:
            call = found.setdefault(payload["call_id"], _begun(event, provenance))
            if policy is not None and call.event_id == event.event_id:
                agent_type = started.get("agent_type", event.producer.agent_type)
                call.verdict = _judged(payload, call, policy, agent_type, started)
        elif event.event_type in _ENDED and payload["call_id"] in found:
            ended = found[payload["call_id"]]
            ended.outcome = _ENDED[event.event_type]
            ended.result_labels = tuple(sorted(payload.get("labels") or ()))
    return list(found.values())


def _begun(event: EventEnvelope, provenance: Provenance) -> RecordedToolCall:
    payload = event.payload
    return RecordedToolCall(
        payload["call_id"],
        event.event_id,
        payload["tool_name"],
        payload["tool_id"],
        payload["input"],
        "denied" if event.event_type == "tool.denied" else "open",
        provenance.of_arguments(event.causation_id or "", payload["input"]),
    )


def _judged(
    payload: Mapping[str, Any],
    call: RecordedToolCall,
    policy: Policy,
    agent_type: str,
    started: dict[str, Any],
) -> Verdict:
    needs = tuple(_literal(one) for one in payload.get("permissions") or ())
    try:
        tool, grant = _tool(payload, needs), grant_in(started)
    except NoesiumError as error:
        return Denied("definition", f"The record cannot be judged: {error.message}", "", "the record")
    except ValueError:
        reason = "The record cannot be judged: its source or its class of side effects is unknown."
        return Denied("definition", reason, "", "the record")
    return judge(tool, call.arguments, _rules(policy, agent_type, grant, call, needs), call.labels)


def _rules(
    policy: Policy, agent_type: str, grant: Grant | None, call: RecordedToolCall, needs: tuple[str, ...]
) -> ToolRules:
    rules = rules_for(policy, agent_type, None, _mode(policy, agent_type), grant)
    leaves_it_to_the_agent = rules.source == ToolRules.source
    return replace(rules, grants=needs) if leaves_it_to_the_agent and call.was_made else rules


def _tool(payload: Mapping[str, Any], needs: tuple[str, ...]) -> AtomicTool:
    """The tool as far as rules ask for it: names, class, and what this call needed.

    Raises:
        ConfigError: its name is not valid.
        ValueError: it has another source or class than there are.
    """
    source, _, rest = payload["tool_id"].partition(":")
    name = payload["tool_name"]
    return AtomicTool(
        name,
        "",
        {},
        source=ToolSource(source),
        toolkit_name=rest.removesuffix(name).removesuffix(".") or None,
        side_effect_class=SideEffectClass(payload.get("side_effect_class") or SideEffectClass.EXTERNAL),
        permissions=needs,
    )


def _mode(policy: Policy, agent_type: str) -> str | None:
    """The mode that the policy names, if it names one: that of the agent's class is not on the log."""
    parts = (policy.agents.get(agent_type), policy.agents.get(ALL))
    return next((part.mode for part in parts if part is not None and part.mode is not None), None)


def _literal(need: str) -> str:
    """A need whose text cannot be taken for a template."""
    return need.replace("{", "?").replace("}", "?")
