"""What the configuration adds to a log that is opened: keys for signatures, and a schema registry."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from noesium_stream.clock import SystemClock
from noesium_stream.errors import ConfigError, CorruptRecordError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.signing import Signer
from noesium_stream.event.standard import AgentStarted
from noesium_stream.log import open_log
from tests.support.registry import registry_server


async def test_configured_keys_sign_what_is_written_and_verify_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = Signer(bytes(range(32)), "ops")
    public, private = tmp_path / "keys.json", tmp_path / "key.json"
    public.write_text(json.dumps({"ops": base64.b64encode(signer.public_key.public_bytes_raw()).decode()}))
    private.write_text(json.dumps({"ops": base64.b64encode(bytes(range(32))).decode()}))
    event = AgentStarted(agent_id="a", agent_type="a", agent_version="1.0.0", instance_id="i")
    sent = event.to_envelope(AgentRef("a", "a"), TraceContext("1" * 32, "2" * 16), partition_key="a")
    stranger = await open_log("memory://shared")
    monkeypatch.setenv("NOESIUM_PUBLIC_KEYS", str(public))
    monkeypatch.setenv("NOESIUM_SIGNATURES", "required")
    monkeypatch.setenv("NOESIUM_SIGNING_KEY", str(private))
    log = await open_log("memory://shared")
    await log.append([sent])
    await stranger.append([signer.sign(sent).replace(event_id=SystemClock().uuid7())])
    topic = log.topology.registry
    signed, unsigned = [r async for r in log.read(topic, {}, until=await log.end(topic))]
    assert signed.envelope == sent
    with pytest.raises(CorruptRecordError, match="only signed records are accepted"):
        unsigned.envelope  # noqa: B018
    await stranger.close()
    await log.close()


async def test_a_file_that_holds_no_keys_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("[]", "nonsense", '{"ops": 7}'):
        keys = tmp_path / "keys.json"
        keys.write_text(text)
        monkeypatch.setenv("NOESIUM_PUBLIC_KEYS", str(keys))
        with pytest.raises(ConfigError, match=r"keys\.json is no file of public keys"):
            await open_log("memory://")


async def test_a_configured_registry_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry_server() as server:
        monkeypatch.setenv("NOESIUM_SCHEMA_REGISTRY", server.url)
        log = await open_log("memory://")
        event = AgentStarted(agent_id="a", agent_type="a", agent_version="1.0.0", instance_id="i")
        sent = event.to_envelope(AgentRef("a", "a"), TraceContext("1" * 32, "2" * 16), partition_key="a")
        await log.append([sent])
        topic = log.topology.registry
        [record] = [r async for r in log.read(topic, {}, until=await log.end(topic))]
        assert record.value[0] == 0
        assert record.envelope == sent
        await log.close()
