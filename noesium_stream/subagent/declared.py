"""What the author of a sub-agent has declared, checked when its class is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noesium_stream.agent.capability import mark_of, offered_function
from noesium_stream.errors import CapabilityError, CapabilityInputError, ConfigError
from noesium_stream.event.standard import Capability, CapabilityType
from noesium_stream.kernel.retry import Retries
from noesium_stream.programs.program import Program
from noesium_stream.subagent.protocol import Protocol
from noesium_stream.subagent.sessions import Limits
from noesium_stream.subagent.text_lines import TextLines
from noesium_stream.tool.signature import Signature

_MAX_SESSION: Final = 200


@dataclass(frozen=True, slots=True)
class Offer:
    """A capability of the program; `signature` is None if its schemas were written by hand."""

    capability: Capability
    signature: Signature | None


@dataclass(frozen=True, slots=True)
class Declared:
    """All that `cli_subagent` was given."""

    agent_type: str
    program: Program
    offers: dict[str, Offer]
    protocol: Protocol
    session: str | None
    limits: Limits
    retries: Retries | None
    restarts: Retries
    approvers: tuple[str, ...]
    patience_s: float

    @property
    def who(self) -> str:
        """The program and its agent, for messages."""
        return f"{self.program.name} of {self.agent_type}"


def offers_of(agent_type: str, capabilities: Sequence[Callable[..., Any] | Capability]) -> dict[str, Offer]:
    """The capabilities by their ids.

    Raises:
        ConfigError: there is none, or one is not valid.
    """
    found: dict[str, Offer] = {}
    for one in capabilities:
        if isinstance(one, Capability):
            offer = Offer(one, None)
        elif callable(one) and mark_of(one) is not None:
            offer = Offer(*offered_function(one, agent_type))
        else:
            raise ConfigError(
                f"{agent_type} cannot offer {one!r}, which is no capability.",
                hint="Put @capability on a function that says what goes in and out, or give a Capability.",
            )
        made = offer.capability.model_copy(update={"capability_type": CapabilityType.EXTERNAL_CLI_SUBAGENT})
        if made.id in found:
            raise ConfigError(
                f"The agent {agent_type} offers {made.id} twice.", hint="Give one of them another id."
            )
        found[made.id] = Offer(made, offer.signature)
    if not found:
        raise ConfigError(f"The agent {agent_type} offers nothing.", hint="Give it a capability.")
    return found


def check_fields(declared: Declared) -> None:
    """Refuse a field that an input cannot have.

    Raises:
        ConfigError
    """
    protocol = declared.protocol
    named = {} if not isinstance(protocol, TextLines) else dict.fromkeys(protocol.fields, "the line has")
    if declared.session is not None:
        named[declared.session] = "names the session by"
    for offer in declared.offers.values():
        schema = offer.capability.input_schema
        known = schema.get("properties")
        if not isinstance(known, Mapping) or schema.get("additionalProperties") is not False:
            continue
        for name, what in named.items():
            if name not in known:
                raise ConfigError(
                    f"{declared.agent_type} {what} the field {name!r}, which the input of "
                    f"{offer.capability.id} does not have.",
                    hint=f"It has {', '.join(known) or 'none'}.",
                )


def at_least_one(number: int, name: str, agent_type: str) -> int:
    """The number.

    Raises:
        ConfigError: it is below one.
    """
    if number < 1:
        raise ConfigError(f"{name} of {agent_type} is {number}: there is one at least.")
    return number


def check_here(declared: Declared) -> None:
    """Refuse a program that is not on this machine.

    Raises:
        ConfigError
    """
    if declared.program.path(os.environ) is None:
        raise ConfigError(
            declared.program.not_here(declared.who),
            hint="Install it, or give its path in `command`.",
        )


def first_state(declared: Declared, given: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
    """The first state of a run; one that no agent has called may leave out which, if there is one only.

    Raises:
        CapabilityError: there is no such capability, or it does not take this input.
    """
    offers = declared.offers
    chosen = capability_id
    if chosen is None and len(offers) == 1:
        (chosen,) = offers
    if chosen is None or chosen not in offers:
        raise CapabilityError(
            f"{chosen or 'A run without a capability'} is none of {declared.agent_type}; it offers "
            f"{', '.join(offers)}.",
            hint="Call one from a node: await current_step().invoke(CAPABILITY, {...}).",
        )
    signature = offers[chosen].signature
    if signature is not None:
        signature.check(chosen, given)
    session_of(declared, given)
    return {"task": chosen, "payload": given}


def session_of(declared: Declared, given: Mapping[str, Any]) -> str | None:
    """The session that an input names; None: inputs name none.

    Raises:
        CapabilityInputError: it names none that can be one.
    """
    if declared.session is None:
        return None
    value = given.get(declared.session)
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not 1 <= len(text) <= _MAX_SESSION:
        raise CapabilityInputError(
            f"{declared.agent_type} takes its session from {declared.session!r}, which is a text of 1 to "
            f"{_MAX_SESSION} characters or a whole number."
        )
    return text
