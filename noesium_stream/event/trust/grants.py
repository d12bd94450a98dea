"""Grants: the roles and scopes that a run acts with, which only narrow from caller to called (RFC-0005).

A run that a person or a program starts has what the policy gives to that name. A call hands on the caller's
grant, or a part of it: `parent` is the hash of the grant that it was made from, so that the grants of a tree
form a chain. Whoever runs a call judges it anew: by its own policy, which bounds what a name can have, and by
what the capability asks for. An honest grant can be followed through the exported runs of a tree up to the
command of the person (`noesium verify --offline`).

Nothing limits a run without a grant: no process that took part had a policy. To call without saying which
roles is to hand on all of one's own; a grant of no role is one that says so.

A grant also limits what the tools of the run may do: permissions and a mode. These narrow in the same way,
without a policy, too: such a grant has None as its roles and scopes, which limits these in nothing. An owner
with a policy gives the run what the policy gives, under the same limits.
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
from noesium_stream.event.standard import Grant, RunRequested, ToolLimits
from noesium_stream.event.trust.permission import MODES, check_limits, uncovered
from noesium_stream.event.trust.policy import Policy
from noesium_stream.event.trust.speaking import decider_of

_SHOWN = 5
_EVERY = "*"


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
    grant: Grant,
    roles: Collection[str] | None = None,
    scopes: Collection[str] | None = None,
    limits: ToolLimits | None = None,
) -> Grant:
    """The grant of a call that is made with these of the caller's roles and scopes; None: with all.

    Args:
        grant: the caller's.
        roles: those that the call hands on.
        scopes: the same for scopes.
        limits: of the tools of the called run; None: the caller's.

    Raises:
        PermissionDeniedError: the caller has not all of them.
    """
    kept = {}
    for what, had, wanted in (("role", grant.roles, roles), ("scope", grant.scopes, scopes)):
        kept[what] = had if wanted is None else sorted(set(wanted))
        _require(what, _beyond(kept[what], had), f"has {_listed(what, had) if had else f'no {what}'}")
    asked = limits or ToolLimits()
    limited = ToolLimits(
        permissions=grant.permissions if asked.permissions is None else asked.permissions,
        mode=grant.mode if asked.mode is None else asked.mode,
    )
    own = grant.permissions
    _require("permission", _uncovered(limited, grant), f"has {_listed('permission', own) if own else 'none'}")
    if _is_more(limited.mode, grant.mode):
        _require("mode", [limited.mode or MODES[-1]], f"has the mode {grant.mode}")
    return Grant(
        principal=grant.principal,
        roles=None if kept["role"] is None else sorted(set(kept["role"])),
        scopes=None if kept["scope"] is None else sorted(set(kept["scope"])),
        parent=grant_hash(grant),
        permissions=limited.permissions,
        mode=limited.mode,
    )


def _require(what: str, missing: Collection[str], has: str) -> None:
    if missing:
        raise PermissionDeniedError(
            f"A call cannot hand on the {_listed(what, missing)}: the run that makes it {has}.",
            hint="A grant only narrows. The policy says what a name has (`noesium guide secure`).",
        )


def limits_of(permissions: Collection[str] | None, mode: str | None) -> ToolLimits | None:
    """The limits of a run's tools; None: there are none.

    Raises:
        ConfigError: one of the permissions is none, there are too many, or there is no such mode.
    """
    if permissions is None and mode is None:
        return None
    check_limits(permissions, mode)
    return ToolLimits(
        permissions=None if permissions is None else list(permissions),
        mode=None if mode is None else str(mode),
    )


def limited_grant(principal: str, limits: ToolLimits) -> Grant:
    """A grant that limits the tools of a run, and not its roles and scopes."""
    return Grant(
        principal=principal, roles=None, scopes=None, permissions=limits.permissions, mode=limits.mode
    )


def asked_in(command: EventEnvelope) -> tuple[Grant | None, ToolLimits | None]:
    """The grant that a call hands on, or the limits that a person or a program sets who starts a run.

    A grant in the command of a person is nobody's: it could name anybody.

    Raises:
        EventValidationError: it has not the form of one.
    """
    if command.event_type == RunRequested.TYPE:
        return None, _limits_in(command.payload)
    return grant_in(command.payload), None


def _limits_in(payload: dict[str, Any]) -> ToolLimits | None:
    found = payload.get("limits")
    if found is None:
        return None
    try:
        return ToolLimits.model_validate(found)
    except ValidationError as error:
        raise EventValidationError("payload.limits", brief(error, 200)) from None


def given_to(policy: Policy | None, command: EventEnvelope) -> Grant | None:
    """The grant of the run that a command asks for; None: nothing limits it.

    A run that a command without a grant starts acts in the name of whoever sent the command.

    Raises:
        EventValidationError: it has not the form of a grant.
    """
    asked, limits = asked_in(command)
    if asked is None and limits is not None:
        asked = limited_grant(decider_of(command), limits)
    if policy is None or (asked is not None and not _is_open(asked)):
        return asked
    given = grant_of(policy, decider_of(command))
    return given if asked is None else _bounded(asked, given, is_call=limits is None)


def _is_open(grant: Grant) -> bool:
    return grant.roles is None or grant.scopes is None


def _bounded(asked: Grant, given: Grant, *, is_call: bool) -> Grant:
    return given.model_copy(
        update={
            "roles": given.roles if asked.roles is None else asked.roles,
            "scopes": given.scopes if asked.scopes is None else asked.scopes,
            "permissions": asked.permissions,
            "mode": asked.mode,
            "parent": grant_hash(asked) if is_call else None,
        }
    )


def start_problem(asked: Grant | None, limits: ToolLimits | None, own: Grant | None) -> str | None:
    """What is wrong with the grant that a run has started with; None: nothing.

    Args:
        asked: the grant in its command.
        limits: the limits in its command.
        own: what the run acts with.
    """
    if asked is not None:
        bounded = own is not None and _is_open(asked) and own.parent == grant_hash(asked)
        if own == asked or (bounded and own is not None and _has_limits(own, asked)):
            return None
        return "the run acts with another grant than it was given"
    if own is not None and own.parent is not None:
        return "the run's grant is said to be narrowed from another one, and nobody has given it one"
    if limits is not None and not (own is not None and _has_limits(own, limits)):
        return "the run acts under other limits than its command has"
    return None


def _has_limits(own: Grant, limits: Grant | ToolLimits) -> bool:
    return own.permissions == limits.permissions and own.mode == limits.mode


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
        lacking = _beyond(required, had)
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
        beyond = _beyond(has, may)
        if beyond:
            return f"the grant has the {_listed(what, beyond)}, {end}"
    uncovered_ones = _uncovered(grant, most)
    if uncovered_ones:
        return f"the grant has the {_listed('permission', uncovered_ones)}, {end}"
    if _is_more(grant.mode, most.mode):
        return f"the grant has the mode {short(grant.mode or MODES[-1])}, {end}"
    return None


def _beyond(has: Iterable[str] | None, may: Collection[str] | None) -> Collection[str]:
    """Which of the names are not among those that there may be; None as these: all may be."""
    if may is None:
        return ()
    return [_EVERY] if has is None else set(has).difference(may)


def _uncovered(limited: Grant | ToolLimits, most: Grant) -> Collection[str]:
    if most.permissions is None:
        return ()
    return [_EVERY] if limited.permissions is None else uncovered(most.permissions, limited.permissions)


def _is_more(mode: str | None, most: str | None) -> bool:
    if most is None:
        return False
    return mode is None or _rank(mode) > _rank(most)


def _rank(mode: str) -> int:
    """The place of a mode among all; an unknown one allows as little as the least."""
    return MODES.index(mode) if mode in MODES else 0


def _listed(what: str, names: Collection[str]) -> str:
    first = sorted(names)[:_SHOWN]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(map(short, first))}{more}"
