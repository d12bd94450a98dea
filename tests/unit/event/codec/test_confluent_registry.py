from __future__ import annotations

import base64
import copy
import io
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from noesium_stream.errors import (
    ConfigError,
    EventValidationError,
    LogUnavailableError,
    SignatureError,
    UnknownSchemaError,
)
from noesium_stream.event import EnvelopeCodec, Signer, Verifier
from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA
from noesium_stream.event.codec.confluent_registry import ENVIRONMENT, ConfluentRegistry, registry_settings
from noesium_stream.log.broker.certificates import Authority
from tests.support.envelopes import envelope, open_catalogue, reference_bytes
from tests.support.ports import dead_port
from tests.support.registry import RegistryServer, registry_server

EVENT = envelope()
BODY = reference_bytes(EVENT)[10:]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def codec(server: RegistryServer, **options: Any) -> EnvelopeCodec:
    return EnvelopeCodec(open_catalogue(), registry=ConfluentRegistry(server.url), **options)


def test_with_a_registry_events_are_written_under_their_number(server: RegistryServer) -> None:
    data = codec(server).encode(EVENT)
    assert data == b"\x00" + (100_001).to_bytes(4, "big") + BODY
    assert server.requests == ["POST /subjects/noesium.event.EventEnvelope/versions"]


def test_reading_and_writing_many_events_asks_the_registry_once(server: RegistryServer) -> None:
    subject = codec(server)
    for _ in range(50):
        assert subject.decode(subject.encode(EVENT)) == EVENT
    assert len(server.requests) == 1


def test_another_writer_schema_is_fetched_once_by_its_number(server: RegistryServer) -> None:
    newer: Any = copy.deepcopy(ENVELOPE_SCHEMA)
    newer["fields"].append({"name": "priority", "type": "int", "default": 0})
    parsed = fastavro.parse_schema(ENVELOPE_SCHEMA)
    record = fastavro.schemaless_reader(io.BytesIO(BODY), parsed, None)
    assert isinstance(record, dict)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(newer), {**record, "priority": 3})
    subject = codec(server)
    data = b"\x00" + server.add(newer).to_bytes(4, "big") + out.getvalue()
    for _ in range(5):
        assert subject.decode(data) == EVENT.replace(extensions={"priority": 3})
    assert len(server.requests) == 2


def test_single_objects_are_read_as_well(server: RegistryServer) -> None:
    assert codec(server).decode(reference_bytes(EVENT)) == EVENT
    assert len(server.requests) == 1


def test_a_number_that_the_registry_does_not_know_is_refused(server: RegistryServer) -> None:
    with pytest.raises(UnknownSchemaError, match="7 is not known to the schema registry"):
        codec(server).decode(b"\x00\x00\x00\x00\x07" + BODY)


def test_a_number_of_another_kind_of_schema_is_refused(server: RegistryServer) -> None:
    number = server.add({"type": "object"}, "JSON")
    with pytest.raises(UnknownSchemaError, match="not of Avro"):
        codec(server).decode(b"\x00" + number.to_bytes(4, "big") + BODY)
    number = server.add('"string"')
    with pytest.raises(UnknownSchemaError, match="not of a record"):
        codec(server).decode(b"\x00" + number.to_bytes(4, "big") + BODY)
    number = server.add("no json")
    with pytest.raises(UnknownSchemaError, match="no JSON"):
        codec(server).decode(b"\x00" + number.to_bytes(4, "big") + BODY)


def test_without_a_registry_the_confluent_format_is_refused_with_a_hint() -> None:
    with pytest.raises(UnknownSchemaError, match="no schema registry is configured") as caught:
        EnvelopeCodec(open_catalogue()).decode(b"\x00\x00\x00\x00\x07" + BODY)
    assert caught.value.hint
    assert "ConfluentRegistry" in caught.value.hint


def test_truncation_and_trailing_bytes_are_refused_in_the_confluent_format(server: RegistryServer) -> None:
    subject = codec(server)
    data = subject.encode(EVENT)
    for length in range(len(data)):
        with pytest.raises(EventValidationError):
            subject.decode(data[:length])
    with pytest.raises(EventValidationError, match="follow the end"):
        subject.decode(data + b"\x00")


def test_every_flipped_bit_of_a_signed_event_is_refused_in_the_confluent_format(
    server: RegistryServer,
) -> None:
    signer = Signer(bytes(range(32)), "key-1")
    subject = codec(server, verifier=Verifier({"key-1": signer.public_key}))
    data = subject.encode(signer.sign(envelope(payload={"n": 1}, metadata={})))
    assert subject.decode(data)
    server.refuse = (404, {"error_code": 40403, "message": "Schema not found"})
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EventValidationError):
            subject.decode(bytes(changed))


def test_a_signed_event_under_a_schema_with_another_order_is_refused_when_it_is_not_canonical(
    server: RegistryServer,
) -> None:
    signer = Signer(bytes(range(32)), "key-1")
    subject = codec(server, verifier=Verifier({"key-1": signer.public_key}))
    signed = signer.sign(envelope(payload={"b": 1, "a": 2}))
    older: Any = copy.deepcopy(ENVELOPE_SCHEMA)
    older["fields"].reverse()
    parsed = fastavro.parse_schema(ENVELOPE_SCHEMA)
    record = fastavro.schemaless_reader(io.BytesIO(subject.encode(signed)[5:]), parsed, None)
    assert isinstance(record, dict)
    frame = b"\x00" + server.add(older).to_bytes(4, "big")

    def written(**changes: str) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(older), {**record, **changes})
        return frame + out.getvalue()

    assert subject.decode(written()) == signed
    with pytest.raises(SignatureError, match="not what was signed"):
        subject.decode(written(payload='{"b":1,"a":2}'))


def test_a_registry_that_does_not_answer_is_an_error_that_may_pass() -> None:
    with dead_port() as port:
        registry = ConfluentRegistry(f"http://127.0.0.1:{port}", {"retries.wait.ms": 1})
        with pytest.raises(LogUnavailableError, match="does not answer") as caught:
            registry.schema(7)
        assert caught.value.retriable
        with pytest.raises(LogUnavailableError):
            EnvelopeCodec(open_catalogue(), registry=registry)


def test_a_registry_in_trouble_is_an_error_that_may_pass(server: RegistryServer) -> None:
    registry = ConfluentRegistry(server.url, {"max.retries": 0})
    server.refuse = (500, {"error_code": 50001, "message": "store is away"})
    with pytest.raises(LogUnavailableError, match="store is away"):
        registry.schema(7)
    with pytest.raises(LogUnavailableError, match="store is away"):
        registry.schema_id(ENVELOPE_SCHEMA)


def test_a_registry_that_refuses_the_schema_is_a_clear_error(server: RegistryServer) -> None:
    server.refuse = (409, {"error_code": 409, "message": "incompatible"})
    with pytest.raises(ConfigError, match=r"under noesium\.event\.EventEnvelope: incompatible"):
        codec(server)


def test_wrong_settings_are_refused_without_their_values() -> None:
    with pytest.raises(ConfigError) as caught:
        ConfluentRegistry("http://127.0.0.1:1", {"basic.auth.user.info": "secret"})
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError):
        ConfluentRegistry("not a url")


def test_without_the_extra_the_error_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['confluent_kafka.schema_registry'] = None\n"
        "from noesium_stream.errors import ConfigError\n"
        "from noesium_stream.event.codec.confluent_registry import ConfluentRegistry\n"
        "try: ConfluentRegistry('http://127.0.0.1:1')\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "noesium-stream[schema-registry]"' in done.stdout


def test_the_codec_does_not_load_the_kafka_client() -> None:
    program = "import sys, noesium_stream.event\nprint([m for m in sys.modules if m.startswith('confluent')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_secured_registry_is_told_who_we_are(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    cert, key = authority.client("alice")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(authority.server())
    login = {"USERNAME": "alice", "PASSWORD": "hunter2:@"}
    files = {"CA": str(authority.ca), "CERT": str(cert), "KEY": str(key)}
    with registry_server(context) as server:
        server.login = f"Basic {base64.b64encode(b'alice:hunter2:@').decode()}"

        def opened(**said: str) -> EnvelopeCodec:
            settings = registry_settings({f"{ENVIRONMENT}{name}": value for name, value in said.items()})
            return EnvelopeCodec(open_catalogue(), registry=ConfluentRegistry(server.url, settings))

        assert opened(**files, **login).decode(opened(**files, **login).encode(EVENT)) == EVENT
        with pytest.raises(ConfigError, match="refuses the envelope") as refused:
            opened(**files, **{**login, "PASSWORD": "wrong"})
        assert "wrong" not in str(refused.value)
        for less in ({"CA": str(authority.ca)}, {**files, "CA": str(other.ca)}, {}):
            with pytest.raises(LogUnavailableError):
                opened(**less, **login)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"CA": "nowhere.pem"}, "There is no file nowhere.pem"),
        ({"USERNAME": "alice"}, "one is missing"),
        ({"PASSWORD": "hunter2"}, "one is missing"),
    ],
)
def test_what_is_wrong_with_the_registrys_variables_is_told(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        registry_settings({f"{ENVIRONMENT}{name}": value for name, value in environ.items()})
    assert "hunter2" not in str(raised.value)
