"""The policy of a log: which names may ask what of which agents, as one TOML file says it.

    [roles]
    auditor = ["alice", "bob"]

    [scopes]
    "ledger:read" = ["role:auditor", "carol"]

    [[allow]]
    who = ["alice", "role:auditor", "agent:clerk"]
    may = ["start", "cancel"]
    agents = ["librarian"]

`[agents.NAME]` says what an agent's tools may do: see `agent_policy`.

A scope has members, as a role has: they may pass it on to the runs that they start (see `grants`). What no
rule allows is refused. The owner of a run judges by the policy of its own process, and records what
it decided: no replay asks a policy. Without a policy everybody may ask everything, unless signatures are
required. A key that speaks for everybody is an operator's, who may ask everything.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noesium_stream.errors import ConfigError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.trust.agent_policy import AgentPolicy, ApproveRule, NeverRule
from noesium_stream.event.trust.budget import Budget
from noesium_stream.event.trust.small_files import read_small
from noesium_stream.event.trust.speaking import decider_of
from noesium_stream.event.trust.trusted_key import ROLE, TrustedKey

Right = Literal[
    "start", "fork", "signal", "cancel", "answer", "resolve", "register", "accept", "grow", "redrive"
]
"""What a name may ask: start a run (or call an agent), start one that branches off another, send a message
to an open one, end it, answer its questions, decide about its unknown effects; offer a capability; accept a
tool's changed definition; start the next generation of an agent's topics; decide about its dead letters."""

ANY: Final = "*"
MAX_FILE_BYTES: Final = 1_000_000
_Name = Annotated[str, Field(min_length=1, max_length=256)]
_Names = Annotated[list[_Name], Field(max_length=1_000)]


class Request(NamedTuple):
    """What somebody asks for.

    Attributes:
        principal: in whose name.
        roles: those that the key speaks for which signed the request, beside the policy's own.
        right: what.
        agent_type: of which agent.
        tenant: the fairness key of the command; None: it does not matter.
        question: the node that asks, where a question is answered; else None.
    """

    principal: str
    roles: Collection[str]
    right: Right
    agent_type: str
    tenant: str | None = None
    question: str | None = None


class Rule(BaseModel):
    """One rule: these names may do this, with these agents, tenants and questions (`*`: all)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    who: _Names = Field(min_length=1)
    may: list[Right | Literal["*"]] = Field(min_length=1, max_length=20)
    agents: _Names = [ANY]
    tenants: _Names = [ANY]
    questions: _Names = [ANY]

    def allows(self, request: Request, names: Collection[str]) -> bool:
        """Whether it allows a request that is made in these names and roles."""
        return (
            (request.right in self.may or ANY in self.may)
            and (ANY in self.who or any(name in self.who for name in names))
            and _covers(self.agents, request.agent_type)
            and _covers(self.tenants, request.tenant)
            and _covers(self.questions, request.question)
        )


class Policy(BaseModel):
    """A policy: roles and scopes with their members, rules, and what agents' tools may do.

    The empty policy allows nothing. One without `agents` says nothing of tools; in another one, an agent that
    is not among `agents` has what `*` has there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    roles: dict[_Name, _Names] = Field(default_factory=dict, max_length=1_000)
    scopes: dict[_Name, _Names] = Field(default_factory=dict, max_length=1_000)
    allow: list[Rule] = Field(default_factory=list, max_length=10_000)
    agents: dict[_Name, AgentPolicy] = Field(default_factory=dict, max_length=1_000)

    def roles_of(self, principal: str) -> frozenset[str]:
        """The roles of a name, without `role:`."""
        return self._roles.get(principal, frozenset())

    def scopes_of(self, principal: str) -> frozenset[str]:
        """The scopes of a name: its own, and those of its roles."""
        names = {principal, *(ROLE + role for role in self.roles_of(principal))}
        return frozenset(
            scope for scope, members in self.scopes.items() if ANY in members or not names.isdisjoint(members)
        )

    def rule_for(self, request: Request) -> str | None:
        """The name of the first rule that allows a request; None: no rule does."""
        roles = self.roles_of(request.principal).union(request.roles)
        names = {request.principal, *(ROLE + role for role in roles)}
        for number, rule in enumerate(self.allow, 1):
            if rule.allows(request, names):
                return f"allow {number}"
        return None

    @cached_property
    def _roles(self) -> dict[str, frozenset[str]]:
        names = {name for members in self.roles.values() for name in members}
        return {
            name: frozenset(role for role, members in self.roles.items() if name in members) for name in names
        }


def read_policy(path: Path) -> Policy:
    """The policy in a file.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or says something that a policy does not say.
    """
    data = read_small(path, MAX_FILE_BYTES, "policy", _NAMED_BY)
    try:
        text = data.decode()
        return Policy.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise _wrong(path, text, error) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The policy {path} is no TOML: {brief(error, 200)}.",
            hint=f"Correct that place. {_FORM_OF_RULES} {_FORM_OF_PARTS}",
        ) from None


OPERATOR: Final = "operator"
"""What `Ruling.rule` says of a key that speaks for everybody."""


class Ruling(NamedTuple):
    """What a policy says about a request.

    Attributes:
        refused: why it is refused; None: it is allowed.
        rule: what allows it: `allow N`, counted from 1, or `operator`; None: nothing had to.
    """

    refused: str | None = None
    rule: str | None = None


def ruling(
    policy: Policy | None,
    event: EventEnvelope,
    key: TrustedKey | None,
    right: Right,
    agent_type: str,
    *,
    tenant: str | None = None,
    question: str | None = None,
) -> Ruling:
    """Judge what an event asks for.

    Args:
        policy: of the log; None: everything is allowed.
        event: the request.
        key: that signed it; None: nobody did, or signatures are not verified.
        right: see `Request`.
        agent_type: see `Request`.
        tenant: see `Request`.
        question: see `Request`.
    """
    if policy is None:
        return Ruling()
    if key is not None and key.speaks_for_everybody:
        return Ruling(rule=OPERATOR)
    roles = frozenset[str]() if key is None else key.roles
    request = Request(decider_of(event), roles, right, agent_type, tenant, question)
    rule = policy.rule_for(request)
    return _ruled(request, rule)


def operator_ruling(policy: Policy | None, principal: str, right: Right, agent_type: str) -> Ruling:
    """Judge what somebody is about to do to the log by a command, by the policy of his own process."""
    if policy is None:
        return Ruling()
    request = Request(principal, (), right, agent_type)
    return _ruled(request, policy.rule_for(request))


def _ruled(request: Request, rule: str | None) -> Ruling:
    if rule is not None:
        return Ruling(rule=rule)
    right, agent_type, question = request.right, request.agent_type, request.question
    asked = "" if question is None else f", question {short(question)}"
    return Ruling(
        f"{short(request.principal)} may not {_WORDS[right]} of {agent_type}{asked}: "
        "no rule of the policy allows it"
    )


_WORDS: Final[dict[Right, str]] = {
    "start": "start runs",
    "fork": "fork runs",
    "signal": "signal runs",
    "cancel": "cancel runs",
    "answer": "answer questions",
    "resolve": "decide about effects",
    "register": "register capabilities",
    "accept": "accept definitions of tools",
    "grow": "grow the topics",
    "redrive": "decide about dead letters",
}


def _covers(allowed: Iterable[str], name: str | None) -> bool:
    return name is None or name in allowed or ANY in allowed


def _wrong(path: Path, text: str, error: ValidationError) -> ConfigError:
    """The error for the first thing that is wrong with a policy."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = first["loc"]
    hint = _FORM_OF_PARTS if place[:1] == ("agents",) else _FORM_OF_RULES
    if first["type"] != "extra_forbidden":
        return ConfigError(f"The policy {path} is wrong: {_place(place)}: {first['msg']}.", hint=hint)
    name, known = str(place[-1]), sorted(_form_at(place).model_fields)
    near = difflib.get_close_matches(name[:80], known, 1)
    meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
    return ConfigError(
        f"The policy {path} is wrong: {_place(place[:-1])}{_line(name, text)}: "
        f"there is no setting {_word(name)}; {meant}",
        hint=hint,
    )


def _form_at(place: Sequence[int | str]) -> type[BaseModel]:
    """The form of what has a key at this place."""
    if len(place) < 2:
        return Policy
    if place[0] == "allow":
        return Rule
    return _FORMS.get(place[2], AgentPolicy) if len(place) > 3 else AgentPolicy


def _line(name: str, text: str) -> str:
    """Where a key is written, if it is written in one line only."""
    key = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])[\"']?\s*[=.\]]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if key.search(line)]
    return f" (line {lines[0]})" if len(lines) == 1 else ""


def _place(path: Sequence[int | str]) -> str:
    """A place in the file, as people write it: `[agents.clerk] approve 1 when`."""
    words = [_word(part) if isinstance(part, str) else str(part + 1) for part in path]
    if len(words) > 1 and words[0] == "agents":
        words[:2] = [f"[agents.{words[1]}]"]
    elif words:
        words[0] = f"[[{words[0]}]]" if words[0] == "allow" else f"[{words[0]}]"
    return " ".join(words) or "the file"


def _word(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else short(text)


_NAMED_BY: Final = "NOESIUM_POLICY, policy in noesium.toml, or --policy"
_FORM_OF_RULES: Final = "See `noesium guide secure` for its form."
_FORM_OF_PARTS: Final = "See `noesium guide permission` for the form of [agents.NAME]."
_FORMS: Final[Mapping[int | str, type[BaseModel]]] = {
    "approve": ApproveRule,
    "never": NeverRule,
    "budget": Budget,
}
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
