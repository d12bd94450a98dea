"""For whom a key may speak, by the record's topic and event."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.standard import ApprovalAnswered, RunCancelRequested, TaskRequested
from noesium_stream.event.trust.speaking import journal_problem, owner_of, principal_of, speaker_problem
from noesium_stream.event.trust.trusted_key import TrustedKey

PUBLIC = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
ALICE = AgentRef("alice", "client")
CLERK = AgentRef("clerk", "clerk")
INBOX, JOURNAL, FACTS = "n.agent.clerk.inbox", "n.agent.clerk.journal.g2", "n.events.orders"


def key(*names: str) -> TrustedKey:
    """A key that speaks for these."""
    return TrustedKey("k", PUBLIC, frozenset(names))


def cancel(producer: AgentRef) -> EventEnvelope:
    """A request of this producer."""
    return RunCancelRequested(run_id="r").to_envelope(producer, None, None, partition_key="r")


def test_a_program_has_its_name_and_an_agent_its_type() -> None:
    assert principal_of(ALICE) == "alice"
    assert principal_of(CLERK) == "agent:clerk"
    assert principal_of(AgentRef("clerk", "client")) == "clerk"


@pytest.mark.parametrize(
    ("topic", "owner"),
    [
        (INBOX, "clerk"),
        (JOURNAL, "clerk"),
        (FACTS, None),
        ("n.registry", None),
        ("n.agent.clerk", None),
        ("n.agent.clerk.other", None),
    ],
)
def test_inboxes_and_journals_have_owners(topic: str, owner: str | None) -> None:
    assert owner_of(topic) == owner


def test_only_who_speaks_for_the_agent_writes_its_journal() -> None:
    assert journal_problem(key("agent:clerk"), JOURNAL) is None
    assert journal_problem(key("*"), JOURNAL) is None
    assert "may not speak for agent:clerk" in (journal_problem(key("alice", "agent:other"), JOURNAL) or "")
    assert journal_problem(key("alice"), INBOX) is None


def test_a_key_speaks_in_no_other_name() -> None:
    event = cancel(ALICE)
    assert speaker_problem(key("alice"), INBOX, event) is None
    assert "may not speak for 'alice'" in (speaker_problem(key("bob"), INBOX, event) or "")
    assert speaker_problem(key("clerk"), FACTS, cancel(CLERK)) is not None


def test_who_decides_is_spoken_for_too() -> None:
    answer = ApprovalAnswered(
        run_id="r", approval_id="a", fingerprint="f", approved=True, answered_by="bob"
    ).to_envelope(ALICE, None, None, partition_key="r")
    assert "'bob'" in (speaker_problem(key("alice"), INBOX, answer) or "")
    assert speaker_problem(key("alice", "bob"), INBOX, answer) is None


def test_an_agent_forwards_what_others_said_into_its_own_topics_alone() -> None:
    event = cancel(ALICE)
    assert speaker_problem(key("agent:clerk"), JOURNAL, event) is None
    assert speaker_problem(key("agent:clerk"), f"{INBOX}.g2", event) is None
    assert speaker_problem(key("agent:clerk"), INBOX, event) is not None
    assert speaker_problem(key("agent:clerk"), "n.agent.other.inbox", event) is not None


def test_an_agent_puts_tasks_that_it_has_taken_into_its_own_inbox_alone() -> None:
    task = TaskRequested(task_id="t", capability_id="c").to_envelope(ALICE, None, None, partition_key="t")
    assert speaker_problem(key("agent:clerk"), INBOX, task) is None
    assert speaker_problem(key("agent:clerk"), "n.agent.other.inbox", task) is not None
    assert speaker_problem(key("bob"), INBOX, task) is not None
