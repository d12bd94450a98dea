"""The secured broker of `deploy/compose.secure.yaml`, from the Python packages, on other ports."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, AdminClient
from confluent_kafka.admin import ResourcePatternType as Pattern
from confluent_kafka.admin import ResourceType as Resource

from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.kafka.acls import Acl
from noesium_stream.log.kafka.probe import KAFKA_LOGGER
from tests.support.command import Folder
from tests.support.kafka import LOCAL_SETTINGS
from tests.support.ports import free_port
from tests.support.reading import PATIENCE_S

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.secure.yaml"
_DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


@dataclass(frozen=True)
class SecuredKafka:
    """Ports of the broker, and the folder of its certificates."""

    mtls: int
    sasl: int
    certificates: Path

    def env(self, name: str) -> dict[str, str]:
        """Variables of a process that has the certificate of this name."""
        file = name.replace(":", "-")
        return {
            "NOESIUM_LOG": f"kafka://localhost:{self.mtls}",
            "NOESIUM_KAFKA_CA": str(self.certificates / "noesium-ca.pem"),
            "NOESIUM_KAFKA_CERT": str(self.certificates / f"{file}.pem"),
            "NOESIUM_KAFKA_KEY": str(self.certificates / f"{file}.key"),
        }

    def delete(self, acl: Acl) -> None:
        """Take a right away."""
        client = AdminClient(
            {
                "bootstrap.servers": f"localhost:{self.mtls}",
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.certificates / "noesium-ca.pem"),
                "ssl.certificate.location": str(self.certificates / "operator.pem"),
                "ssl.key.location": str(self.certificates / "operator.key"),
            },
            logger=KAFKA_LOGGER,
        )
        which = AclBindingFilter(
            Resource[acl.resource],
            acl.name,
            Pattern[acl.pattern],
            acl.user,
            "*",
            AclOperation[acl.operation],
            AclPermissionType.ALLOW,
        )
        for done in client.delete_acls([which]).values():
            assert len(done.result(PATIENCE_S)) == 1, acl


@contextmanager
def secured_kafka(folder: Path, *names: str) -> Iterator[SecuredKafka]:
    """Such a broker, with a certificate for each name, ended afterwards."""
    certificates = folder / "certificates"
    options = [part for name in names for part in ("--for", name)]
    Folder(folder).ok("security", "certificates", str(certificates), *options)
    plain, ports = free_port(), {port: free_port() for port in (9093, 9094, 9095, 9096)}
    broker = LocalBroker(folder, plain, settings=_settings(certificates, plain, ports, folder))
    try:
        broker.up()
        yield SecuredKafka(ports[9093], ports[9094], certificates)
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _settings(certificates: Path, plain: int, ports: dict[int, int], folder: Path) -> dict[str, str]:
    """The settings of the compose file, and a plain listener, by which a `LocalBroker` sees that it is up."""
    environment = yaml.safe_load(COMPOSE.read_text())["services"]["kafka"]["environment"]
    found = {}
    for variable, value in environment.items():
        if not variable.startswith("KAFKA_") or variable in ("KAFKA_HEAP_OPTS", "KAFKA_LOG_DIRS"):
            continue
        name = variable.removeprefix("KAFKA_").lower()
        name = name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
        text = _DEFAULT.sub(r"\1", value).replace("$$", "$").replace("/etc/noesium", str(certificates))
        for port, free in ports.items():
            text = text.replace(f":{port}", f":{free}")
        found[name] = text
    for name in ("listeners", "advertised.listeners"):
        found[name] += f",PLAINTEXT://127.0.0.1:{plain}"
    found["listener.security.protocol.map"] += ",PLAINTEXT:PLAINTEXT"
    return {**LOCAL_SETTINGS, **found}
