"""The judgement of a call, before it begins: pure, and the same for the executor and for a dry run.

What denies comes first, then what asks, then what allows:

1. Modes `ask` and `plan` allow tools that only read.
2. A rule `never` of the policy.
3. Each need of the call is covered by a grant of the agent, and by the run's narrowing.
4. A rule `approve` of the policy asks; in mode `act`, external calls are asked about without one.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from noesium_stream.event.envelope_fields import short
from noesium_stream.event.standard import Grant, SideEffectClass
from noesium_stream.event.trust.agent_policy import ALL, AgentPolicy, ApproveRule, Labels, NeverRule
from noesium_stream.event.trust.permission import (
    MODES,
    READING,
    covering,
    intersection,
    lesser_mode,
    permission_in,
    uncovered,
)
from noesium_stream.event.trust.permission_needs import needs_of
from noesium_stream.event.trust.policy import Policy
from noesium_stream.event.trust.wildcards import covers_text
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import Mode
from noesium_stream.tool.verdict import Allowed, Ask, Denied, Verdict

NO_LABELS: Final[Labels] = MappingProxyType({})
_PROGRAMS: Final = ("shell:", "python:")
"""Kinds of what starts programs."""
_GUIDE: Final = "See `noesium guide permission`."


@dataclass(frozen=True)
class ToolRules:
    """The rules for the tools of one agent, in one run.

    Attributes:
        agent_type: the agent.
        mode: the most that it may do.
        grants: what it is granted.
        narrowing: what the run is limited to; None: it is not.
        approve, never: the policy's rules, the agent's own before those of all agents.
        without_approval: tools that mode `act` does not ask about.
        ask_before: tools that mode `act` asks about beside those with effects outside.
        source: who has granted, for people.
        of_class: what the agent's class names at most; None: it names nothing.
        of_policy: what the policy grants; None: it leaves that to the class.
        place: where the policy says what it grants.
        other_parts: the agents that have a part in the policy, if this one has none.
    """

    agent_type: str
    mode: Mode
    grants: tuple[str, ...] = ()
    narrowing: tuple[str, ...] | None = None
    approve: tuple[ApproveRule, ...] = ()
    never: tuple[NeverRule, ...] = ()
    without_approval: tuple[str, ...] = ()
    ask_before: frozenset[str] = frozenset()
    source: str = "the agent's own permissions"
    of_class: tuple[str, ...] | None = None
    of_policy: tuple[str, ...] | None = None
    place: str = ""
    other_parts: tuple[str, ...] = ()

    def narrowed(self, permissions: Collection[str]) -> ToolRules:
        """The same rules, limited to these permissions as well, as a skill limits its tools."""
        own = self.narrowing
        return replace(
            self, narrowing=tuple(permissions) if own is None else intersection(own, tuple(permissions))
        )

    @cached_property
    def effective(self) -> tuple[str, ...]:
        """What the agent's tools may do in the run at most: grants within the narrowing and the mode."""
        both = self.grants if self.narrowing is None else intersection(self.grants, self.narrowing)
        reads_only = self.mode in (Mode.ASK, Mode.PLAN)
        return tuple(one for one in both if not reads_only or _kind(one) in READING)


def rules_for(
    policy: Policy | None,
    agent_type: str,
    agent_permissions: Sequence[str] | None,
    agent_mode: str | None,
    run_grant: Grant | None = None,
    ask_before: Sequence[str] = (),
) -> ToolRules:
    """The rules for an agent's tools in a run.

    Args:
        policy: of this process; None, or one without `agents`: the agent has its own permissions.
        agent_type: the agent.
        agent_permissions: the upper bound that its class names; None: it names none, and has what the policy
            grants.
        agent_mode: the mode that its class names; None: `act`.
        run_grant: what the run acts with; None: nothing limits it.
        ask_before: tools that its class wants mode `act` to ask about.
    """
    own, common, place = _parts(policy, agent_type)
    grants = tuple(agent_permissions or ())
    source = "the agent's own permissions"
    granted = own.grant if own.grant is not None else common.grant
    if granted is not None:
        source = f"grant in {place}"
        grants = tuple(granted) if agent_permissions is None else intersection(granted, grants)
    narrowing = None if run_grant is None else run_grant.permissions
    return ToolRules(
        agent_type=agent_type,
        mode=Mode(
            lesser_mode(
                agent_mode or Mode.ACT,
                own.mode if own.mode is not None else common.mode,
                None if run_grant is None else run_grant.mode,
            )
        ),
        grants=grants,
        narrowing=None if narrowing is None else tuple(narrowing),
        approve=(*own.approve, *common.approve),
        never=(*own.never, *common.never),
        without_approval=(*own.without_approval, *common.without_approval),
        ask_before=frozenset(ask_before),
        source=source,
        of_class=None if agent_permissions is None else tuple(agent_permissions),
        of_policy=None if granted is None else tuple(granted),
        place=place,
        other_parts=() if policy is None or agent_type in policy.agents else tuple(policy.agents),
    )


_NOTHING: Final = AgentPolicy()
_UNLISTED: Final = AgentPolicy(grant=[])


def _parts(policy: Policy | None, agent_type: str) -> tuple[AgentPolicy, AgentPolicy, str]:
    """What a policy says of the agent, of all agents, and where it says what the agent is granted."""
    if policy is None or not policy.agents:
        return _NOTHING, _NOTHING, ""
    common = policy.agents.get(ALL, _NOTHING)
    own = policy.agents.get(agent_type)
    if own is None:
        own = _NOTHING if ALL in policy.agents else _UNLISTED
    place = f'[agents."{ALL}"]' if own.grant is None else f"[agents.{agent_type}]"
    return own, common, f"{place} of the policy"


def judge(
    tool: AtomicTool,
    arguments: Mapping[str, Any],
    rules: ToolRules,
    labels: Labels = NO_LABELS,
    found: Sequence[str] = (),
) -> Verdict:
    """Judge a call.

    Args:
        tool: what is called.
        arguments: as the caller gives them; they need not be valid.
        rules: for the agent that calls, in its run.
        labels: the provenance of the arguments.
        found: what the call needs beside the tool's declared permissions (see `AtomicTool.find_needs`).
    """
    needs = (*needs_of(tool.permissions, arguments), *found)
    denied = (
        _by_mode(tool, needs, rules)
        or _by_rule(tool, arguments, rules, labels)
        or _by_permission(tool, needs, rules)
    )
    if denied is not None:
        return denied
    granted = _granted(needs, rules)
    return _asked(tool, arguments, rules, labels, granted) or Allowed(granted, _allowing(needs, rules))


def _by_mode(tool: AtomicTool, needs: Sequence[str], rules: ToolRules) -> Denied | None:
    if rules.mode not in (Mode.ASK, Mode.PLAN):
        return None
    beyond = [need for need in needs if _kind(need) not in READING]
    if tool.side_effect_class is SideEffectClass.PURE and not beyond:
        return None
    why = f"needs {_listed(beyond)}" if beyond else f"is {tool.side_effect_class}"
    end = "; it belongs to the plan" if rules.mode is Mode.PLAN else ""
    return Denied(
        "mode",
        f"{tool.name} {why}, and {rules.agent_type} only reads in mode {rules.mode}{end}.",
        f"Modes {MODES[2]} and {MODES[3]} do more. {_GUIDE}",
        f"mode {rules.mode}",
    )


def _by_rule(
    tool: AtomicTool, arguments: Mapping[str, Any], rules: ToolRules, labels: Labels
) -> Denied | None:
    for rule in rules.never:
        if rule.is_about((tool.name, tool.tool_id), tool.side_effect_class, arguments, labels):
            found = rule.labels_in(labels)
            return Denied(
                "provenance" if rule.argument_from else "rule",
                f"A rule of the policy refuses {tool.name}{_because(rule.when, found)}.",
                f'The rule is in [agents.{rules.agent_type}] or [agents."*"] of the policy. {_GUIDE}',
                f"never {rule.tool}",
            )
    return None


def _by_permission(tool: AtomicTool, needs: Sequence[str], rules: ToolRules) -> Denied | None:
    missing = uncovered(rules.grants, needs)
    rule = rules.source
    why, hint = _ungranted(missing, rules) if missing else ("", "")
    if not missing and rules.narrowing is not None:
        missing = uncovered(rules.narrowing, needs)
        why = f"its run is limited to {_listed(rules.narrowing) or 'nothing'}"
        rule = "the run's narrowing"
        hint = "Whoever starts the run, calls it, or writes the skill that it uses, sets that limit."
    if not missing:
        return None
    outside = [need for need in missing if (found := permission_in(need)) is None or found.outside]
    if outside:
        return Denied(
            "permission",
            f"{tool.name} needs {_listed(outside)}, which no permission can be: the path leads out of the "
            "workspace, or the name is not valid.",
            "Name something within the workspace.",
            rule,
        )
    return Denied("permission", f"{tool.name} needs {_listed(missing)}, and {why}.", f"{hint} {_GUIDE}", rule)


def _ungranted(missing: Sequence[str], rules: ToolRules) -> tuple[str, str]:
    """Why the agent is not granted what it needs, and what a person could change."""
    who = f"{rules.agent_type} is not granted that"
    part = f"[agents.{rules.agent_type}]"
    if rules.of_class is None and rules.of_policy is None:
        hint = f"Name it in `permissions` of the agent's class, or in grant of {part} of a policy."
        return f"{who}: it is granted nothing", hint
    by_class = rules.of_class is not None and bool(uncovered(rules.of_class, missing))
    by_policy = rules.of_policy is not None and bool(uncovered(rules.of_policy, missing))
    whys, hints = [], []
    if by_class or not by_policy:
        whys.append(f"its class has {_listed(rules.of_class or ()) or 'no permission'}")
        hints.append("Add it to `permissions` of the agent's class: a policy never adds to these.")
    if by_policy or not by_class:
        if rules.other_parts and ALL not in rules.other_parts:
            whys.append(f"the policy has no part {part}")
        else:
            whys.append(f"{rules.place} grants {_listed(rules.of_policy or ()) or 'nothing'}")
        hints.append(_policy_hint(rules, part))
    return f"{who}: {', and '.join(whys)}", " ".join(hints)


def _policy_hint(rules: ToolRules, part: str) -> str:
    names = [name for name in rules.other_parts if name.isprintable() and name != ALL]
    near = difflib.get_close_matches(rules.agent_type, names, 1)
    if near:
        return f"Did you mean [agents.{near[0]}]? The part has to have the agent's name: {part}."
    return f"Add it to grant in {part} of the policy."


def _asked(
    tool: AtomicTool,
    arguments: Mapping[str, Any],
    rules: ToolRules,
    labels: Labels,
    granted: tuple[str, ...],
) -> Ask | None:
    names = (tool.name, tool.tool_id)
    found = [
        rule for rule in rules.approve if rule.is_about(names, tool.side_effect_class, arguments, labels)
    ]
    if found:
        first = found[0]
        return Ask(
            f"A rule of the policy asks about {tool.name}{_because(first.when, first.labels_in(labels))}.",
            next((tuple(rule.by) for rule in found if rule.by), ()),
            max(rule.minimum for rule in found),
            granted,
            f"approve {first.tool}",
        )
    if not _asks_by_default(tool, names, rules):
        return None
    external = tool.side_effect_class is SideEffectClass.EXTERNAL
    why = "has effects outside" if external else "changes something"
    return Ask(f"{tool.name} {why}.", (), 1, granted, f"mode {rules.mode}")


def _asks_by_default(tool: AtomicTool, names: Collection[str], rules: ToolRules) -> bool:
    external = tool.side_effect_class is SideEffectClass.EXTERNAL
    return (
        rules.mode is Mode.ACT
        and (external or not rules.ask_before.isdisjoint(names))
        and not any(covers_text(one, name) for one in rules.without_approval for name in names)
        and not any(rule.decides_alone and rule.names(names) for rule in rules.approve)
    )


def _granted(needs: Sequence[str], rules: ToolRules) -> tuple[str, ...]:
    """What the call may do: of what the run may do, the kinds that the call needs.

    Writing includes reading. What starts programs has all: which kinds these need is not known before.
    """
    kinds = {_kind(need) for need in needs}
    kinds |= {f"{kind.removesuffix(':write')}:read" for kind in kinds if kind.endswith(":write")}
    everything = any(kind.startswith(_PROGRAMS) for kind in kinds)
    granted = tuple(one for one in rules.effective if everything or _kind(one) in kinds)
    # Two patterns that overlap have no intersection of their own; what is needed is covered by both.
    return (*granted, *uncovered(granted, needs))


def _allowing(needs: Iterable[str], rules: ToolRules) -> str:
    grants = dict.fromkeys(grant for need in needs if (grant := covering(rules.grants, need)) is not None)
    return f"{', '.join(grants)} ({rules.source})" if grants else "it needs no permission"


def _kind(permission: str) -> str:
    found = permission_in(permission)
    return ":".join(permission.split(":", 2)[:2]) if found is None else found.kind


def _because(when: str | None, labels: Sequence[str]) -> str:
    parts = [f"({when})"] if when is not None else []
    if labels:
        parts.append(f"with an argument from {', '.join(short(label) for label in labels[:5])}")
    return f" {' '.join(parts)}" if parts else ""


def _listed(needs: Sequence[str]) -> str:
    more = f" and {len(needs) - 3} more" if len(needs) > 3 else ""
    return ", ".join(short(need) for need in needs[:3]) + more
