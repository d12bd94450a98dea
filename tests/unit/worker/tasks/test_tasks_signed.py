"""Tasks where every record has to be signed: who asked is proved at whoever takes the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.client import Client
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.trust.policy import Policy
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.headers import SENDER
from noesium_stream.log.port import EventLog
from tests.support.delegating import State, caller, letters, provider, working
from tests.support.reading import stored

NAMES = {"ann": "ann", "boss": "agent:boss", "alpha": "agent:alpha"}
SIGNERS = {key_id: Signer(Ed25519PrivateKey.generate(), key_id) for key_id in NAMES}
TRUSTED = {
    key_id: TrustedKey(key_id, SIGNERS[key_id].public_key, frozenset({name}))
    for key_id, name in NAMES.items()
}
POLICY = Policy.model_validate(
    {
        "allow": [
            {"who": ["ann"], "may": ["start"], "agents": ["boss"]},
            {"who": ["agent:boss"], "may": ["start"], "agents": ["alpha"]},
            {"who": ["agent:alpha"], "may": ["register"]},
        ]
    }
)


async def ask(state: State) -> dict[str, Any]:
    return {"value": (await current_step().request_task("sum.up", {"n": state["n"]}))["value"]}


async def double(state: State) -> dict[str, Any]:
    return {"value": 2 * state["n"]}


async def opened(url: str, key_id: str) -> EventLog:
    return await open_log(url, signer=SIGNERS[key_id], verifier=Verifier(TRUSTED, required=True))


async def test_a_task_is_handed_on_with_the_proof_of_who_asked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}?partitions=2"
    logs = {key_id: await opened(url, key_id) for key_id in NAMES}
    boss, alpha = caller(ask, "boss"), provider("alpha", double, tasks=("sum.up",))
    async with (
        working(logs["boss"], tmp_path / "b", boss, policy=POLICY),
        working(logs["alpha"], tmp_path / "a", alpha, policy=POLICY),
        Client(logs["ann"], agent_id="ann") as client,
    ):
        run = await client.start("boss", {"n": 4})
        assert await run.result() == {"value": 8}
    [handed_on] = await stored(logs["ann"], logs["ann"].topology.inbox("alpha"))
    assert handed_on.envelope.producer.agent_type == "boss"
    assert handed_on.header(SENDER) is not None
    assert not await letters(logs["ann"])
    for log in logs.values():
        await log.close()
