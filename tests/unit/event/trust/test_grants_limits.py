"""Limits of a run's tools: how they narrow, with and without a policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.clock import SystemClock
from noesium_stream.errors import ConfigError, PermissionDeniedError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import Grant, RunRequested, ToolLimits
from noesium_stream.event.trust.grants import (
    given_to,
    grant_hash,
    grant_of,
    limited_grant,
    limits_of,
    link_problem,
    missing,
    narrowed,
    start_problem,
)
from noesium_stream.event.trust.policy import Policy

POLICY = Policy.model_validate({"roles": {"auditor": ["alice"]}})
LIMITS = ToolLimits(permissions=["fs:read"], mode="plan")


def _command(limits=None, **fields):
    requested = RunRequested(run_id="r", agent_type="clerk", input={}, limits=limits, **fields)
    return root_event(requested, AgentRef("alice", "client"), SystemClock(), correlation_id="r")


def test_a_grant_without_limits_has_the_fields_and_the_hash_that_it_always_had():
    grant = Grant(principal="alice", roles=["auditor"])
    assert grant.model_dump(mode="json") == {
        "principal": "alice",
        "roles": ["auditor"],
        "scopes": [],
        "parent": None,
    }
    assert "limits" not in _command().payload


def test_limits_without_a_policy_limit_neither_roles_nor_scopes():
    assert given_to(None, _command()) is None
    own = given_to(None, _command(LIMITS))
    assert own == limited_grant("alice", LIMITS)
    assert missing(["auditor"], ["ledger:read"], own) is None
    assert start_problem(None, LIMITS, own) is None
    assert start_problem(None, LIMITS, None) == "the run acts under other limits than its command has"


def test_limits_under_a_policy_come_with_what_the_policy_gives():
    own = given_to(POLICY, _command(LIMITS))
    assert own is not None
    assert (own.roles, own.permissions, own.mode, own.parent) == (["auditor"], ["fs:read"], "plan", None)
    assert given_to(POLICY, _command()) == grant_of(POLICY, "alice")


def test_no_permission_at_all_is_a_limit_as_well():
    own = given_to(None, _command(limits_of([], None)))
    assert own is not None
    assert own.permissions == []


def test_a_grant_in_the_command_of_a_person_gives_nothing():
    forged = {"principal": "root", "roles": ["admin"], "scopes": []}
    assert given_to(POLICY, _command(grant=forged)) == grant_of(POLICY, "alice")


def test_a_call_narrows_permissions_and_mode_and_never_widens_them():
    own = limited_grant("alice", ToolLimits(permissions=["fs:read", "fs:write:reports/**"], mode="act"))
    assert narrowed(own).permissions == own.permissions
    child = narrowed(own, limits=ToolLimits(permissions=["fs:write:reports/may.md"], mode="ask"))
    assert (child.permissions, child.mode, child.roles) == (["fs:write:reports/may.md"], "ask", None)
    assert child.parent == grant_hash(own)
    assert link_problem(own, child) is None
    with pytest.raises(PermissionDeniedError, match="permission 'fs:write'"):
        narrowed(own, limits=ToolLimits(permissions=["fs:write"]))
    with pytest.raises(PermissionDeniedError, match="mode 'auto'"):
        narrowed(own, limits=ToolLimits(mode="auto"))


def test_a_grant_that_widens_the_limits_is_seen():
    own = limited_grant("alice", LIMITS)
    wider = narrowed(own).model_copy(update={"permissions": ["fs:write"]})
    assert link_problem(own, wider) == "the grant has the permission 'fs:write', which the run has not"
    unlimited = narrowed(own).model_copy(update={"permissions": None})
    assert "permission '*'" in str(link_problem(own, unlimited))
    assert "mode" in str(link_problem(own, narrowed(own).model_copy(update={"mode": "act"})))
    assert "mode" in str(link_problem(own, narrowed(own).model_copy(update={"mode": None})))


def test_limits_that_are_none_are_refused():
    assert limits_of(None, None) is None
    for permissions, mode in ((["fs"], None), (["fs:read:../x"], None), (None, "all"), ("fs:read", None)):
        with pytest.raises(ConfigError):
            limits_of(permissions, mode)


_some = st.lists(st.sampled_from(["fs:read", "fs:read:a/**", "fs:read:a/b", "fs:write"]), max_size=4)


@given(st.none() | _some, st.none() | _some)
def test_what_a_call_hands_on_always_makes_a_valid_link(had, wanted):
    own = limited_grant("alice", ToolLimits(permissions=had))
    try:
        child = narrowed(own, limits=ToolLimits(permissions=wanted))
    except PermissionDeniedError:
        return
    assert link_problem(own, child) is None
