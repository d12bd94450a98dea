"""The main job on a secured broker: each name has the rights that the policy gives it, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from noesium_stream.log.kafka.acls import Acl
from tests.support.command import Folder
from tests.support.kafka_least_rights import ROOT, SecuredKafka, secured_kafka

pytestmark = pytest.mark.timeout(900)

POLICY = """
[[allow]]
who = ["alice"]
may = ["start", "cancel"]
agents = ["researcher"]

[[allow]]
who = ["agent:researcher"]
may = ["start"]
agents = ["librarian"]

[[allow]]
who = ["agent:librarian", "agent:researcher"]
may = ["register"]
"""
NAMES = ("alice", "mallory", "agent:researcher", "agent:librarian", "agent:projections")
QUESTION = "What happens when a process dies?"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured"), *NAMES) as running:
        folder = tmp_path_factory.mktemp("operator")
        (folder / "noesium.policy.toml").write_text(POLICY)
        operator = Folder(folder, **running.env("operator"), NOESIUM_POLICY="noesium.policy.toml")
        for _ in range(2):  # the second time changes nothing
            operator.ok("security", "acls", "--projections", "agent:projections", "--apply")
        yield running


def as_name(broker: SecuredKafka, name: str, home: Path, **env: str) -> Folder:
    """A terminal of this name, in the clone."""
    return Folder(ROOT, **{**broker.env(name), "NOESIUM_HOME": str(home / name.replace(":", "-")), **env})


def acls(home: Path) -> list[Acl]:
    """The rights that the policy gives."""
    (home / "noesium.policy.toml").write_text(POLICY)
    folder = Folder(home, NOESIUM_POLICY="noesium.policy.toml", NOESIUM_LOG="kafka://localhost:1")
    return [Acl(**one) for one in folder.json("security", "acls", "--json")]


def documents(home: Path) -> Path:
    """A folder with one document."""
    docs = home / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# Crashes\n\nWhen a process dies, the next owner goes on with its runs.\n")
    return docs


def said_once(stderr: str) -> str:
    """The one error; there is no traceback, and no noise of a client."""
    errors = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, stderr
    assert "Traceback" not in stderr
    assert "rdkafka" not in stderr
    return errors[0]


def test_the_main_job_runs_with_least_rights(broker: SecuredKafka, tmp_path: Path) -> None:
    docs = documents(tmp_path)
    librarian, researcher = (
        as_name(broker, f"agent:{name}", tmp_path) for name in ("librarian", "researcher")
    )
    alice = as_name(broker, "alice", tmp_path)
    with (
        librarian.running("worker", "agents.librarian", "--docs", str(docs)) as first,
        researcher.running("worker", "agents.researcher") as second,
    ):
        first.wait_for_error_line("at work on", 120)
        second.wait_for_error_line("at work on", 120)
        assert "the next owner" in alice.ok("run", "agents.researcher", QUESTION)
        (run,) = alice.json("runs", "--agent", "researcher", "--json")
        assert run["status"] == "completed"
        assert alice.ok("events", run["run_id"])
        projections = as_name(broker, "agent:projections", tmp_path)
        projections.ok("project", "execution", "--once")
        assert "completed" in projections.ok("state", "execution")
        refused = as_name(broker, "mallory", tmp_path).run("run", "agents.researcher", QUESTION)
        assert refused.returncode == 3
        assert "noesium.agent.researcher.inbox: the Kafka broker" in said_once(refused.stderr)
        not_hers = alice.run("run", "agents.librarian", "--input", json.dumps({"query": "secrets"}))
        assert not_hers.returncode == 3
        assert "noesium.agent.librarian.inbox" in said_once(not_hers.stderr)


def test_a_user_with_a_password_is_let_in_and_has_only_his_rights(
    broker: SecuredKafka, tmp_path: Path
) -> None:
    operator = Folder(tmp_path, **broker.env("operator"), NOESIUM_KAFKA_NEW_PASSWORD="bob's secret")
    operator.ok("security", "user", "bob")
    login = {
        "NOESIUM_LOG": f"kafka://localhost:{broker.sasl}",
        "NOESIUM_KAFKA_CA": str(broker.certificates / "noesium-ca.pem"),
        "NOESIUM_KAFKA_USERNAME": "bob",
        "NOESIUM_KAFKA_MECHANISM": "SCRAM-SHA-512",
    }
    bob = Folder(ROOT, **login, NOESIUM_HOME=str(tmp_path), NOESIUM_KAFKA_PASSWORD="bob's secret")
    refused = bob.run("run", "agents.researcher", QUESTION)
    assert "does not allow it" in said_once(refused.stderr)
    wrong = Folder(tmp_path, **login, NOESIUM_KAFKA_PASSWORD="wrong").run("runs")
    assert "does not let us in" in said_once(wrong.stderr)


def test_who_may_read_everything_can_write_nothing_and_own_nothing(
    broker: SecuredKafka, tmp_path: Path
) -> None:
    reader = as_name(broker, "agent:projections", tmp_path)
    asked = reader.run("run", "agents.researcher", QUESTION)
    assert asked.returncode == 3
    assert "does not allow it" in said_once(asked.stderr)
    worker = reader.run("worker", "agents.librarian", "--docs", str(documents(tmp_path)))
    assert worker.returncode == 3
    assert "does not allow it" in said_once(worker.stderr)
    assert reader.json("topics", "--json")


@pytest.mark.parametrize(
    ("who", "resource", "name", "operation"),
    [
        ("alice", "TOPIC", "noesium.agent.researcher.inbox", "WRITE"),
        ("alice", "TOPIC", "noesium.agent.researcher.journal", "READ"),
        ("agent:librarian", "TOPIC", "noesium.agent.librarian.", "WRITE"),
        ("agent:librarian", "TOPIC", "noesium.agent.librarian.", "READ"),
        ("agent:librarian", "TOPIC", "noesium.registry", "WRITE"),
        ("agent:librarian", "GROUP", "noesium.noesium.agent.librarian", "READ"),
        ("agent:librarian", "TRANSACTIONAL_ID", "noesium.writer.noesium.agent.librarian.", "WRITE"),
    ],
)
def test_a_right_that_is_missing_is_one_clear_error(
    broker: SecuredKafka, tmp_path: Path, who: str, resource: str, name: str, operation: str
) -> None:
    operator = Folder(tmp_path, **broker.env("operator"), NOESIUM_POLICY="noesium.policy.toml")
    (tmp_path / "noesium.policy.toml").write_text(POLICY)
    (acl,) = [
        one
        for one in acls(tmp_path)
        if (one.user, one.resource, one.name, one.operation) == (f"User:{who}", resource, name, operation)
    ]
    broker.delete(acl)
    try:
        terminal = as_name(broker, who, tmp_path)
        if who == "alice":
            done = terminal.run("run", "agents.researcher", QUESTION)
        else:
            done = terminal.run("worker", "agents.librarian", "--docs", str(documents(tmp_path)))
        assert done.returncode == 3, done.stderr
        error = said_once(done.stderr)
        assert "does not allow it" in error
        assert ("noesium.agent.researcher" if who == "alice" else "noesium.") in error
        assert "noesium security acls" in done.stderr
    finally:
        operator.ok("security", "acls", "--apply")
