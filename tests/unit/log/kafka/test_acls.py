"""Which ACLs a policy needs: each name what it has to do, and nothing of others."""

from __future__ import annotations

import pytest

from noesium_stream.client.operate.dead_letters import WRITER
from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.kafka.acls import Acl, acls_of
from noesium_stream.log.topics import Topology

POLICY = Policy.model_validate(
    {
        "roles": {"auditor": ["carol"]},
        "allow": [
            {"who": ["alice"], "may": ["start"], "agents": ["clerk"]},
            {"who": ["agent:clerk"], "may": ["start"], "agents": ["payer"]},
            {"who": ["agent:clerk", "agent:payer"], "may": ["register"]},
            {"who": ["role:auditor"], "may": ["answer"]},
        ],
    }
)


def written(acls: list[Acl], user: str) -> set[str]:
    """What a user may write, with `*` behind a beginning."""
    return {
        acl.name + ("*" if acl.pattern == "PREFIXED" else "")
        for acl in acls
        if acl.user == f"User:{user}" and (acl.resource, acl.operation) == ("TOPIC", "WRITE")
    }


def test_only_an_agents_workers_write_its_journal_use_its_writers_and_join_its_group() -> None:
    acls = acls_of(POLICY, Topology())
    journals = [
        acl
        for acl in acls
        if "noesium.agent.payer.journal".startswith(acl.name) and acl.operation in ("WRITE", "CREATE")
    ]
    writers = [acl for acl in acls if acl.name.startswith("noesium.writer.noesium.agent.payer.")]
    members = [
        acl for acl in acls if acl.resource == "GROUP" and acl.operation == "READ" and "payer" in acl.name
    ]
    for found in (journals, writers, members):
        assert {acl.user for acl in found} == {"User:agent:payer"}


def test_workers_may_leave_tasks_and_take_them_and_people_may_not() -> None:
    acls = acls_of(POLICY, Topology())
    topology = Topology()
    for user in ("agent:clerk", "agent:payer"):
        assert {"noesium.task.*", "noesium.taken.*"} <= written(acls, user)
        groups = [acl.name for acl in acls if acl.user == f"User:{user}" and acl.resource == "GROUP"]
        assert any(f"noesium.{topology.takers('image.resize')}".startswith(name) for name in groups)
    assert not any("task" in name or "taken" in name for name in written(acls, "alice"))


def test_the_treasurer_answers_every_agent_and_writes_no_journal_but_its_own() -> None:
    acls = acls_of(POLICY, Topology(), agents=["treasurer"])
    found = written(acls, "agent:treasurer")
    assert {f"noesium.agent.{kind}.inbox*" for kind in ("clerk", "payer")} <= found
    assert not any("clerk.journal" in name or name == "noesium.agent.clerk.*" for name in found)
    assert "noesium.agent.clerk.inbox*" not in written(acls_of(POLICY, Topology()), "agent:treasurer")


def test_people_write_the_inboxes_that_the_policy_lets_them_and_nothing_else() -> None:
    acls = acls_of(POLICY, Topology())
    assert written(acls, "alice") == {"noesium.agent.clerk.inbox*"}
    assert written(acls, "carol") == {"noesium.agent.clerk.inbox*", "noesium.agent.payer.inbox*"}
    assert not any(
        acl.operation in ("CREATE", "ALL", "ALTER", "DELETE") for acl in acls if acl.user == "User:alice"
    )


def test_who_is_called_may_answer_its_caller_and_registering_gives_no_right_on_agents() -> None:
    acls = acls_of(POLICY, Topology())
    assert "noesium.agent.clerk.inbox*" in written(acls, "agent:payer")
    assert "noesium.agent.payer.inbox*" in written(acls, "agent:clerk")
    assert "noesium.agent.payer.journal*" not in written(acls, "agent:clerk")


def test_names_may_have_other_users_and_a_namespace_other_topics() -> None:
    acls = acls_of(POLICY, Topology("acme"), users={"alice": "CN=alice", "agent:projections": "fold"})
    assert written(acls, "CN=alice") == {"acme.agent.clerk.inbox*"}
    assert written(acls, "fold") == {"acme.registry"}
    assert not written(acls, "alice")
    assert all(acl.name.startswith("acme.") for acl in acls)


def test_workers_make_topics_only_if_they_may() -> None:
    assert any(acl.operation == "CREATE" for acl in acls_of(POLICY, Topology()))
    assert not any(acl.operation == "CREATE" for acl in acls_of(POLICY, Topology(), create=False))


@pytest.mark.parametrize("name", ["", "a/b", "a.b", "x" * 100, "A"])
def test_what_is_no_agent_type_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not an agent type"):
        acls_of(Policy(), Topology(), agents=[name])


def test_who_may_redrive_writes_dead_letters_by_the_one_writer() -> None:
    policy = Policy.model_validate({"allow": [{"who": ["ops"], "may": ["redrive"], "agents": ["clerk"]}]})
    acls = acls_of(policy, Topology())
    assert written(acls, "ops") == {"noesium.agent.clerk.inbox*", "noesium.dlq"}
    assert Acl("User:ops", "TRANSACTIONAL_ID", "LITERAL", f"noesium.writer.{WRITER}", "WRITE") in acls
