"""The policy: what each rule allows, and what is wrong with a file of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.standard import ApprovalAnswered, RunCancelRequested
from noesium_stream.event.trust.policy import MAX_FILE_BYTES, Policy, Request, read_policy, ruling
from noesium_stream.event.trust.trusted_key import TrustedKey

TEXT = """
[roles]
auditor = ["alice", "bob"]

[[allow]]
who = ["alice", "agent:clerk"]
may = ["start", "cancel"]
agents = ["librarian"]
tenants = ["acme"]

[[allow]]
who = ["role:auditor"]
may = ["answer"]
questions = ["refund"]

[[allow]]
who = ["*"]
may = ["signal"]

[[allow]]
who = ["ops"]
may = ["*"]
"""


def written(folder: Path, text: str) -> Path:
    """A policy file."""
    path = folder / "noesium.policy.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        (Request("alice", (), "start", "librarian", "acme"), "allow 1"),
        (Request("agent:clerk", (), "cancel", "librarian"), "allow 1"),
        (Request("alice", (), "start", "clerk", "acme"), None),
        (Request("alice", (), "start", "librarian", "other"), None),
        (Request("alice", (), "fork", "librarian", "acme"), None),
        (Request("bob", (), "answer", "clerk", None, "refund"), "allow 2"),
        (Request("bob", (), "answer", "clerk", None, "delete"), None),
        (Request("carol", (), "answer", "clerk", None, "refund"), None),
        (Request("carol", ("auditor",), "answer", "clerk", None, "refund"), "allow 2"),
        (Request("anybody", (), "signal", "clerk"), "allow 3"),
        (Request("ops", (), "grow", "clerk"), "allow 4"),
        (Request("clerk", (), "cancel", "librarian"), None),
    ],
)
def test_a_request_is_allowed_by_the_first_rule_that_covers_it(
    tmp_path: Path, request_: Request, rule: str | None
) -> None:
    assert read_policy(written(tmp_path, TEXT)).rule_for(request_) == rule


def test_roles_are_those_of_the_file() -> None:
    policy = Policy(roles={"a": ["x", "y"], "b": ["x"]})
    assert policy.roles_of("x") == {"a", "b"}
    assert policy.roles_of("y") == {"a"}
    assert policy.roles_of("z") == frozenset()


NO_AGENT = "[[allow]] 1 (line 4): there is no setting agent; did you mean agents?"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("= 5", "is no TOML"),
        ("a = " + "[" * 100_000, "is no TOML"),
        ("[[allow]]\nmay = ['start']", "[[allow]] 1 who: "),
        ("[[allow]]\nwho = ['a']\nmay = ['fly']", "[[allow]] 1 may 1"),
        ("[[allow]]\nwho = ['a']\nmay = ['start']\nagent = ['x']", NO_AGENT),
        ("rules = 5", "the file (line 1): there is no setting rules; did you mean roles?"),
        (
            "[agents.clerk]\n\nmoed = 'act'",
            "[agents.clerk] (line 3): there is no setting moed; did you mean mode?",
        ),
        (
            "[agents.clerk]\nzzz = 1\n[roles]\nzzz = ['a']",
            "[agents.clerk]: there is no setting zzz; there are approve, ",
        ),
        ("[agents.'a b']\nmode = 'fly'", "[agents.'a b'] mode: Input should be 'ask'"),
        (
            "[agents.a]\nnever = [{tool = 'x', whn = 'a'}]",
            "[agents.a] never 1 (line 2): there is no setting whn; did you mean when?",
        ),
        (
            "[agents.a]\nbudget = {usb = 1}",
            "[agents.a] budget (line 2): there is no setting usb; did you mean usd?",
        ),
        ("[agents.a]\n'x\\u001b' = 1", "no setting"),
    ],
)
def test_a_wrong_file_is_one_error_that_names_the_place(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read_policy(path)
    assert problem in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\x1b" not in str(raised.value)
    guide = "permission" if text.startswith("[agents") else "secure"
    assert f"`noesium guide {guide}`" in str(raised.value.hint)


def test_a_file_that_is_not_there_or_too_large_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as absent:
        read_policy(tmp_path / "absent.toml")
    assert "NOESIUM_POLICY" in str(absent.value.hint)
    with pytest.raises(ConfigError, match="more than 1,000,000 bytes"):
        read_policy(written(tmp_path, "#" * (MAX_FILE_BYTES + 1)))


def event(producer: str = "alice") -> EventEnvelope:
    """A request to cancel."""
    sender = AgentRef(producer, "client")
    return RunCancelRequested(run_id="r").to_envelope(sender, None, None, partition_key="r")


def test_without_a_policy_all_is_allowed_and_the_empty_one_allows_nothing() -> None:
    assert ruling(None, event(), None, "cancel", "clerk").refused is None
    said = ruling(Policy(), event(), None, "cancel", "clerk").refused
    assert said == "'alice' may not cancel runs of clerk: no rule of the policy allows it"


def test_an_operator_may_do_all_and_a_key_brings_its_roles() -> None:
    public = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    assert ruling(Policy(), event(), TrustedKey("ops", public), "cancel", "clerk").refused is None
    policy = Policy.model_validate({"allow": [{"who": ["role:closer"], "may": ["cancel"]}]})
    closer = TrustedKey("k", public, frozenset({"alice", "role:closer"}))
    assert ruling(policy, event(), closer, "cancel", "clerk").refused is None
    assert ruling(policy, event(), TrustedKey("k", public, frozenset({"alice"})), "cancel", "clerk").refused


def test_who_answers_is_judged_and_not_the_program_that_sends_it() -> None:
    answer = ApprovalAnswered(
        run_id="r", approval_id="a", fingerprint="f", approved=True, answered_by="bob"
    ).to_envelope(AgentRef("cli", "client"), None, None, partition_key="r")
    policy = Policy.model_validate({"allow": [{"who": ["cli"], "may": ["answer"]}]})
    said = ruling(policy, answer, None, "answer", "clerk", question="refund").refused
    assert said == (
        "'bob' may not answer questions of clerk, question 'refund': no rule of the policy allows it"
    )
