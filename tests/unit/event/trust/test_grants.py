"""Grants: what a policy gives, how a call narrows it, and what is wrong with a forged one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import EventValidationError, PermissionDeniedError
from noesium_stream.event.standard import Grant
from noesium_stream.event.trust.grants import (
    grant_hash,
    grant_in,
    grant_of,
    link_problem,
    missing,
    narrowed,
    widening,
)
from noesium_stream.event.trust.policy import Policy

POLICY = Policy.model_validate(
    {
        "roles": {"auditor": ["alice"], "clerk": ["alice", "bob"]},
        "scopes": {"ledger:read": ["role:auditor"], "ledger:write": ["bob"], "news": ["*"]},
    }
)
NAMES = st.lists(st.sampled_from("abcdef"), max_size=6)


def test_a_policy_gives_roles_and_scopes_to_a_name_and_to_its_roles() -> None:
    alice = grant_of(POLICY, "alice")
    assert (alice.roles, alice.scopes, alice.parent) == (["auditor", "clerk"], ["ledger:read", "news"], None)
    assert grant_of(POLICY, "bob").scopes == ["ledger:write", "news"]
    assert grant_of(POLICY, "carol") == Grant(principal="carol", scopes=["news"])


def test_a_call_hands_on_everything_or_the_part_that_it_names() -> None:
    alice = grant_of(POLICY, "alice")
    whole = narrowed(alice)
    assert (whole.roles, whole.scopes, whole.parent) == (alice.roles, alice.scopes, grant_hash(alice))
    part = narrowed(alice, roles=["auditor"], scopes=[])
    assert (part.principal, part.roles, part.scopes) == ("alice", ["auditor"], [])
    with pytest.raises(PermissionDeniedError, match=r"the scope 'ledger:write': .* has scopes"):
        narrowed(alice, scopes=["ledger:write"])
    with pytest.raises(PermissionDeniedError, match=r"the role 'auditor': .* has no role"):
        narrowed(narrowed(alice, roles=[]), roles=["auditor"])


def test_what_a_grant_lacks_is_named_and_nothing_limits_a_run_without_one() -> None:
    bob = grant_of(POLICY, "bob")
    assert missing(["clerk"], ["news"], bob) is None
    assert missing(["auditor"], [], bob) == "'bob' acts without the role 'auditor'"
    assert missing([], ["a", "b"], bob) == "'bob' acts without the scopes 'a', 'b'"
    assert missing(["auditor"], ["a"], None) is None


def test_a_grant_of_more_than_the_policy_gives_is_seen() -> None:
    forged = Grant(principal="bob", roles=["auditor", "clerk"])
    assert widening(POLICY, forged) == (
        "the grant has the role 'auditor', which the policy does not give to 'bob'"
    )
    assert widening(POLICY, narrowed(grant_of(POLICY, "bob"))) is None
    assert widening(None, forged) is None


def test_what_is_wrong_with_a_link_of_a_chain_is_named() -> None:
    alice = grant_of(POLICY, "alice")
    child = narrowed(alice, roles=["clerk"])
    assert link_problem(alice, child) is None
    assert link_problem(None, None) is None
    assert link_problem(alice, None) == "a run that is limited has handed on no grant"
    assert "was not made from" in str(link_problem(child, child))
    assert "is 'bob'" in str(link_problem(alice, child.model_copy(update={"principal": "bob"})))
    wider = Grant(principal="alice", roles=["admin"], parent=grant_hash(alice))
    assert link_problem(alice, wider) == "the grant has the role 'admin', which the run has not"


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_grant_only_narrows(
    roles: list[str], scopes: list[str], some: list[str], others: list[str]
) -> None:
    grant = Grant(principal="p", roles=sorted(set(roles)), scopes=sorted(set(scopes)))
    try:
        child = narrowed(grant, some, others)
    except PermissionDeniedError:
        assert not (set(some) <= set(roles) and set(others) <= set(scopes))
        return
    assert set(child.roles) == set(some) <= set(roles)
    assert set(child.scopes) == set(others) <= set(scopes)
    assert link_problem(grant, child) is None


def test_the_hash_of_a_grant_is_the_same_for_every_writer() -> None:
    grant = Grant(principal="ä", roles=["b", "a"], scopes=[])
    assert grant_hash(grant) == grant_hash(Grant.model_validate(grant.model_dump(mode="json")))
    assert grant_hash(grant) != grant_hash(Grant(principal="ä", roles=["a", "b"], scopes=[]))


@pytest.mark.parametrize("wrong", ["x", {"roles": []}, {"principal": 7}, {"principal": "p", "roles": "x"}])
def test_what_is_no_grant_is_an_invalid_event(wrong: object) -> None:
    with pytest.raises(EventValidationError, match="grant"):
        grant_in({"grant": wrong})
