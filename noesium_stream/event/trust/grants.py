"""Grants: the roles and scopes that a run acts with, which only narrow from caller to called (RFC-0005).

A run that a person or a program starts has what the policy gives to that name. A call hands on the caller's
grant, or a part of it: `parent` is the hash of the grant that it was made from, so that the grants of a tree
form a chain. Whoever runs a call judges it anew: by its own policy, which bounds what a name can have, and by
what the capability asks for. An honest grant can be followed through the exported runs of a tree up to the
command of the person (`noesium verify --offline`).

Nothing limits a run without a grant: no process that took part had a policy. To call without saying which
roles is to hand on all of one's own; a grant of no role is one that says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import ValidationError

from noesium_stream.errors import EventValidationError, PermissionDeniedError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.standard import Grant
from noesium_stream.event.trust.policy import Policy
from noesium_stream.event.trust.speaking import decider_of

_SHOWN = 5


def grant_in(payload: dict[str, Any]) -> Grant | None:
    """The grant in a payload; None: it has none.

    Raises:
        EventValidationError: it has not the form of one.
    """
    found = payload.get("grant")
    if found is None:
        return None
    try:
        return Grant.model_validate(found)
    except ValidationError as error:
        raise EventValidationError("payload.grant", brief(error, 200)) from None


def grant_hash(grant: Grant) -> str:
    """The SHA-256 of a grant's canonical form (RFC 8785), in hexadecimal digits."""
    return hashlib.sha256(canonical_json(grant.model_dump(mode="json"))).hexdigest()


def grant_of(policy: Policy, principal: str) -> Grant:
    """What the policy gives to a name."""
    roles, scopes = policy.roles_of(principal), policy.scopes_of(principal)
    return Grant(principal=principal, roles=sorted(roles), scopes=sorted(scopes))


def narrowed(
    grant: Grant, roles: Collection[str] | None = None, scopes: Collection[str] | None = None
) -> Grant:
    """The grant of a call that is made with these of the caller's roles and scopes; None: with all.

    Raises:
        PermissionDeniedError: the caller has not all of them.
    """
    kept = {}
    for what, had, wanted in (("role", grant.roles, roles), ("scope", grant.scopes, scopes)):
        missing = set(wanted or ()).difference(had)
        if missing:
            raise PermissionDeniedError(
                f"A call cannot hand on the {_listed(what, missing)}: the run that makes it has "
                f"{_listed(what, had) if had else f'no {what}'}.",
                hint="A grant only narrows. The policy says what a name has (`noesium guide secure`).",
            )
        kept[what] = sorted(set(had if wanted is None else wanted))
    return Grant(
        principal=grant.principal, roles=kept["role"], scopes=kept["scope"], parent=grant_hash(grant)
    )


def given_to(policy: Policy | None, command: EventEnvelope) -> Grant | None:
    """The grant of the run that a command asks for; None: nothing limits it.

    A run that a command without a grant starts acts in the name of whoever sent the command.

    Raises:
        EventValidationError: it has not the form of a grant.
    """
    asked = grant_in(command.payload)
    if asked is not None or policy is None:
        return asked
    return grant_of(policy, decider_of(command))


def widening(policy: Policy | None, grant: Grant) -> str | None:
    """What a grant has and the policy does not give to its name; None: it has no more than that."""
    if policy is None:
        return None
    most = grant_of(policy, grant.principal)
    return _more(grant, most, f"which the policy does not give to {short(grant.principal)}")


def missing(roles: Iterable[str], scopes: Iterable[str], grant: Grant | None) -> str | None:
    """Which of the required roles and scopes a grant has not; None: it has all, or nothing limits it."""
    if grant is None:
        return None
    for what, required, had in (("role", roles, grant.roles), ("scope", scopes, grant.scopes)):
        lacking = set(required).difference(had)
        if lacking:
            return f"{short(grant.principal)} acts without the {_listed(what, lacking)}"
    return None


def link_problem(parent: Grant | None, child: Grant | None) -> str | None:
    """What is wrong with the grant of a call that a run with the grant `parent` has made; None: nothing."""
    if parent is None:
        return None
    if child is None:
        return "a run that is limited has handed on no grant"
    if child.principal != parent.principal:
        return f"the grant is {short(child.principal)}'s, but the run acts for {short(parent.principal)}"
    if child.parent != grant_hash(parent):
        return "the grant was not made from that of the run"
    return _more(child, parent, "which the run has not")


def _more(grant: Grant, most: Grant, end: str) -> str | None:
    for what, has, may in (("role", grant.roles, most.roles), ("scope", grant.scopes, most.scopes)):
        beyond = set(has).difference(may)
        if beyond:
            return f"the grant has the {_listed(what, beyond)}, {end}"
    return None


def _listed(what: str, names: Collection[str]) -> str:
    first = sorted(names)[:_SHOWN]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(map(short, first))}{more}"
