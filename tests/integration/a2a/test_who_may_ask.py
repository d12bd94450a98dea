"""Who may ask an A2A server, and how much: tokens, addresses, sizes, policy."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, A2AClientError
from a2a.types import GetTaskRequest, ListTasksRequest
from a2a.utils.errors import TaskNotFoundError
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from noesium_stream.client import Client
from noesium_stream.serving.gate import MAX_BODY_BYTES
from noesium_stream.serving.tokens import token_hash
from tests.support.a2a import Desk, Place, message, sent

POLICY = """
[[allow]]
who = ["alice", "agent:desk"]
may = ["*"]
"""


def tokens(path: Path, **names: str) -> str:
    """A file of tokens; their bearers by token."""
    lines = [f'"{token_hash(token)}" = "{name}"' for token, name in names.items()]
    file = path / "tokens.toml"
    file.write_text("\n".join(["[tokens]", *lines]))
    return str(file)


async def test_a_bearer_asks_in_his_name_and_sees_his_own_tasks_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.working(Desk) as log:
        with place.serving("--tokens", tokens(tmp_path, secret_a="alice", secret_b="bob")) as server:
            async with server.client(token="secret_a") as alice, server.client(token="secret_b") as bob:
                task = await sent(alice, message("m1", "good day", skill="desk.upper"))
                same = await sent(bob, message("m1", "good day", skill="desk.upper"))
                with pytest.raises(TaskNotFoundError):
                    await bob.get_task(GetTaskRequest(id=task.id))
                listed = await bob.list_tasks(ListTasksRequest())
                asked = await sent(alice, message("m2", {"amount": 7}, skill="desk.refund"))
                done = await sent(alice, message("m3", "no", task_id=asked.id))
            async with server.client(token="other") as nobody:
                with pytest.raises(A2AClientError, match="401"):
                    await sent(nobody, message("m1", "good day", skill="desk.upper"))
        async with Client(log) as runs:
            by_alice = await runs.list_runs(where={"by": "alice"})
    assert same.id != task.id
    assert [one.id for one in listed.tasks] == [same.id]
    assert {f"desk.{run.run_id}" for run in by_alice} == {task.id, asked.id}
    assert done.artifacts[0].parts[0].data.struct_value.fields["by"].string_value == "alice"


async def test_what_the_policy_refuses_is_a_rejected_task(tmp_path: Path, monkeypatch: Any) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    monkeypatch.setenv("NOESIUM_POLICY", str(policy))
    place = Place(tmp_path, NOESIUM_POLICY=str(policy))
    async with place.working(Desk):
        with place.serving("--tokens", tokens(tmp_path, secret_a="alice", secret_b="bob")) as server:
            async with server.client(token="secret_b") as bob:
                task = await sent(bob, message("m1", "good day", skill="desk.upper"))
                again = await bob.get_task(GetTaskRequest(id=task.id))
            async with server.client(token="secret_a") as alice:
                allowed = await sent(alice, message("m1", "good day", skill="desk.upper"))
    assert task == again
    assert "'bob' may not start runs of desk" in task.status.message.parts[0].text
    assert (task.status.state, allowed.status.state) == (7, 3)


async def test_requests_that_are_wrong_get_one_sentence_and_no_traceback(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.working(Desk):
        with place.serving() as server:
            large = await server.post(b" " * (MAX_BODY_BYTES + 1))
            foreign = await server.post({}, Host="evil.example")
            old = await server.call("SendMessage", {}, **{"A2A-Version": "0.3"})
            none = await server.call("Unheard", {})
            deep = await server.post(b'{"a":' * 100_000)
            nested: dict[str, Any] = {}
            for _ in range(120):
                nested = {"a": nested}
            part = {"data": nested}
            sent_deep = await server.call(
                "SendMessage", {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [part]}}
            )
            cursor = await server.call("SubscribeToTask", {"id": "desk.1"}, **{"Last-Event-ID": "x"})
            wrong = await server.call("GetTask", {"id": "../../etc/passwd"})
            empty = await server.call("SendMessage", {"message": {"messageId": "1"}})
            process = server.process
    assert (large.status_code, foreign.status_code) == (413, 421)
    assert old["error"]["code"] == -32009
    assert none["error"]["code"] == -32601
    assert deep.json()["error"]["code"] in (-32700, -32603)
    assert sent_deep["error"]["code"] == -32602
    assert cursor["error"]["code"] == -32602
    assert wrong["error"]["code"] == -32001
    assert empty["error"]["code"] == -32602
    assert "Traceback" not in "\n".join([*process.err, large.text, foreign.text, deep.text, str(sent_deep)])
    assert len(process.err) == 1, process.err  # where it serves: others cannot fill its standard error


async def test_the_card_is_signed_with_the_key_of_the_server(tmp_path: Path) -> None:
    place = Place(tmp_path, NOESIUM_SIGNING_KEY=str(tmp_path / "server.key"))
    public = place.folder.json("keys", "new", "server", "--for", "a2a", "--out", "server.key")
    verifier = create_signature_verifier(lambda key_id, url: public_key(public, key_id), ["EdDSA"])
    async with place.working(Desk):
        with place.serving() as server:
            async with httpx.AsyncClient(trust_env=False) as http:
                resolver = A2ACardResolver(http, server.url)
                card = await resolver.get_agent_card(signature_verifier=verifier)
    card.description = "changed on the way"
    with pytest.raises(InvalidSignaturesError):
        verifier(card)


def public_key(entries: Any, key_id: str | None) -> Any:
    entry = entries[key_id]
    text = entry["key"] if isinstance(entry, dict) else entry
    return Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(text))


async def test_an_address_that_others_reach_needs_tokens(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.working(Desk):
        nowhere = place.folder.run("a2a", "serve", "--log", "sqlite:///nowhere.db")
        refused = place.folder.run("a2a", "serve", "--host", "0.0.0.0", "--port", "0", "--log", place.url)
        unknown = place.folder.run("a2a", "serve", "nobody", "--log", place.url)
        (tmp_path / "bad.toml").write_text('[tokens]\n"secret" = "alice"')
        bad = place.folder.run("a2a", "serve", "--tokens", "bad.toml", "--log", place.url)
        with place.serving("--host", "0.0.0.0", "--insecure") as server:
            server.url = server.url.replace("0.0.0.0", "127.0.0.1")
            found = await server.call("ListTasks", {})
    assert nowhere.returncode == 3
    assert "There is no log" in nowhere.stderr
    assert "--tokens FILE" in refused.stderr
    assert "There is no agent nobody" in unknown.stderr
    assert "no hash" in bad.stderr
    assert (refused.returncode, unknown.returncode, bad.returncode) == (2, 2, 2)
    assert "Traceback" not in refused.stderr + unknown.stderr + bad.stderr
    assert found["result"]["tasks"] == []
