"""A real Apache Kafka that lets nobody in without proof: TLS, SASL over TLS, and client certificates."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from noesium_stream.log.broker.certificates import Authority
from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.kafka.probe import KAFKA_LOGGER
from tests.support.kafka import LOCAL_SETTINGS
from tests.support.ports import free_port
from tests.support.reading import PATIENCE_S

USER = "me"
PASSWORD = "hunter2:@/?&#%é"
"""Everything that a URL has to quote."""
KEY_PASSWORD = "correct horse"
_SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
_JAAS = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class SecureKafka:
    """Ports of one broker; `plain` is the one without any security."""

    plain: int
    sasl: int
    tls: int
    mutual: int
    ca: Path
    other_ca: Path
    cert: Path
    key: Path

    def url(self, namespace: str, mechanism: str = "PLAIN", *, password: str = PASSWORD) -> str:
        """The address of the listener that wants a password over TLS."""
        login = f"{USER}:{quote(password, safe='')}"
        return (
            f"kafka://{login}@localhost:{self.sasl}?namespace={namespace}&mechanism={mechanism}&ca={self.ca}"
        )

    def add_user(self, name: str, password: str) -> None:
        """Let a user in by both SCRAM mechanisms."""
        for mechanism in _SCRAM:
            info = ScramCredentialInfo(mechanism, 4096)
            self._alter(UserScramCredentialUpsertion(name, info, password.encode()))

    def remove_user(self, name: str) -> None:
        """Take that back; connections that there are stay."""
        for mechanism in _SCRAM:
            self._alter(UserScramCredentialDeletion(name, mechanism))

    def _alter(self, alteration: UserScramCredentialAlteration) -> None:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.plain}"}, logger=KAFKA_LOGGER)
        for done in admin.alter_user_scram_credentials([alteration]).values():
            done.result(PATIENCE_S)


@contextmanager
def secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """Such a broker, from the Python packages, ended afterwards."""
    authority = Authority(folder, "ours")
    cert, key = authority.client("tester", KEY_PASSWORD, file="client")
    ports = {name: free_port() for name in ("PLAINTEXT", "CONTROLLER", "SASL", "TLS", "MUTUAL")}
    server = SecureKafka(
        ports["PLAINTEXT"],
        ports["SASL"],
        ports["TLS"],
        ports["MUTUAL"],
        authority.ca,
        Authority(folder, "other").ca,
        cert,
        key,
    )
    broker = LocalBroker(folder, server.plain, settings=_settings(ports, authority))
    try:
        broker.up()
        server.add_user(USER, PASSWORD)
        yield server
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _settings(ports: dict[str, int], authority: Authority) -> dict[str, str]:
    listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
    store = str(authority.server())
    return {
        **LOCAL_SETTINGS,
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": ",".join(text for name, text in listeners.items() if name != "CONTROLLER"),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,TLS:SSL,"
        "MUTUAL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        # A file of properties is read as Latin-1, and JAAS has quotes of its own.
        "listener.name.sasl.plain.sasl.jaas.config": f"{_JAAS}.plain.PlainLoginModule required "
        f'user_{USER}="{_escaped(PASSWORD)}";',
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
    }


def _escaped(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode().replace("\\x", "\\u00")
