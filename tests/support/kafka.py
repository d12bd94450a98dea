"""A real Apache Kafka for the tests. The first that applies:

1. `NOESIUM_KAFKA_BOOTSTRAP`: a broker that is there already;
2. Docker, where a daemon answers and the image (`NOESIUM_KAFKA_IMAGE`) is present or can be pulled;
3. the Python packages of the extra `kafka-local`.

Where none works the tests fail and say what to install; they never skip. One broker serves all processes of
a run: whoever needs it first starts it, and it is ended with the run. The terminal summary names it and says
how many tests ran on it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import docker
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from docker.errors import DockerException
from filelock import FileLock
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.kafka.probe import answers
from tests.support.parallel import count, counted, is_first_process, shared_folder
from tests.support.ports import free_port
from tests.support.reading import PATIENCE_S

IMAGE = os.environ.get("NOESIUM_KAFKA_IMAGE", "apache/kafka:4.2.0")
START_TIMEOUT_S = 180.0

LOCAL_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}


SHARED_SETTINGS = {**LOCAL_SETTINGS, "broker.session.timeout.ms": "600000"}
"""Settings of the broker that all tests share: a machine that stands still does not fence it.

Not for a broker that is killed: its next start would wait for the end of that session.
"""


@dataclass(frozen=True)
class KafkaServer:
    """A broker to test against."""

    bootstrap: str
    source: str

    def url(self, namespace: str) -> str:
        """The log's URL for one namespace on this broker."""
        return f"kafka://{self.bootstrap}?namespace={namespace}"

    def inject(
        self, topic: str, partition: int, key: str, headers: Sequence[tuple[str, bytes]], value: bytes
    ) -> None:
        """Produce a record as a foreign program would."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, value, key, partition, headers=list(headers))
        assert producer.flush(PATIENCE_S) == 0


def remove_topics(bootstrap: str, containing: str) -> None:
    """Remove the topics of a broker whose names contain a text, and wait until they are gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})  # it tells how it is let go of
    names = [name for name in admin.list_topics(timeout=PATIENCE_S).topics if containing in name]
    for gone in admin.delete_topics(names).values() if names else ():
        gone.result(PATIENCE_S)


@pytest.fixture(scope="session")
def kafka_server(request: pytest.FixtureRequest) -> KafkaServer:
    """The broker of this run, which ends it."""
    return ensure_kafka(shared_folder(request.config))


@pytest.fixture
def kafka(kafka_server: KafkaServer, request: pytest.FixtureRequest) -> KafkaServer:
    """The broker of this run, for one test, which counts as run on it."""
    count(request.config, f"kafka: {kafka_server.source} at {kafka_server.bootstrap}")
    return kafka_server


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def own_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker of the Python packages for one test alone: it may be killed. Not started yet."""
    broker = LocalBroker(tmp_path, 0, settings=LOCAL_SETTINGS)
    count(request.config, "kafka: own brokers of the Python packages")
    yield broker
    broker.kill()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which Kafka was used, so that nobody has to guess whether a real one was."""
    for line, tests in sorted(counted(terminalreporter.config).items()):
        terminalreporter.write_line(f"{line}, {tests} integration tests")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the broker with the process that outlives the others."""
    if is_first_process(config):
        end_kafka(shared_folder(config))


@contextmanager
def start_kafka(folder: Path) -> Iterator[KafkaServer]:
    """A broker by the first way that applies, ended afterwards; `folder` is for its data."""
    try:
        yield ensure_kafka(folder)
    finally:
        end_kafka(folder)


def ensure_kafka(folder: Path) -> KafkaServer:
    """The broker that runs for `folder`; if there is none, one is started by the first way that applies."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "kafka.json"
    with FileLock(folder / "kafka.lock"):
        if note.exists():
            return KafkaServer(**json.loads(note.read_text()))
        server = _start(folder)
        note.write_text(json.dumps(asdict(server)))
        return server


def end_kafka(folder: Path) -> None:
    """End the broker that was started for `folder`, if one was, and drop its data."""
    containers = folder / "containers"
    for container in containers.read_text().splitlines() if containers.exists() else ():
        with suppress(DockerException), client_closing(docker.from_env(timeout=60)) as client:
            client.containers.get(container).remove(force=True, v=True)
    LocalBroker(folder, 0).kill()
    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path) -> KafkaServer:
    given = os.environ.get("NOESIUM_KAFKA_BOOTSTRAP")
    if given:
        if not answers(given, timeout_s=5.0):
            pytest.fail(f"no Kafka broker answers at NOESIUM_KAFKA_BOOTSTRAP={given}", pytrace=False)
        return KafkaServer(given, "a given broker")
    return _in_docker(folder) if docker_image_at_hand(IMAGE) else _from_packages(folder)


def docker_daemon_answers() -> bool:
    """Whether a Docker daemon answers here."""
    try:
        client = docker.from_env(timeout=5)
    except DockerException:
        return False
    with client_closing(client):
        try:
            return bool(client.ping())
        except (DockerException, OSError):
            return False


def docker_image_at_hand(image: str) -> bool:
    """Whether a Docker daemon answers and has the image, or can pull it."""
    if not docker_daemon_answers():
        return False
    with client_closing(docker.from_env(timeout=60)) as client:
        try:
            client.images.get(image)
        except DockerException:
            try:
                client.images.pull(image)
            except (DockerException, OSError):
                return False
        return True


@contextmanager
def client_closing(client: docker.DockerClient) -> Iterator[docker.DockerClient]:
    """Close a Docker client at the end, so that no socket is left to the collector."""
    try:
        yield client
    finally:
        client.close()


def _in_docker(folder: Path) -> KafkaServer:
    # The reaper is an image of its own, which may not be at hand; `end_kafka` ends the container.
    testcontainers_config.ryuk_disabled = True
    port = free_port()
    container = DockerContainer(IMAGE).with_bind_ports(9092, port)
    settings = {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        # The broker writes transaction markers to itself, by the inter-broker listener. The published port is
        # not reachable from inside the container: without INSIDE every transaction would stay open.
        "LISTENERS": "OUTSIDE://:9092,INSIDE://:9093,CONTROLLER://:9094",
        "ADVERTISED_LISTENERS": f"OUTSIDE://127.0.0.1:{port},INSIDE://localhost:9093",
        "INTER_BROKER_LISTENER_NAME": "INSIDE",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "AUTO_CREATE_TOPICS_ENABLE": "false",
    }
    settings.update({name.upper().replace(".", "_"): value for name, value in SHARED_SETTINGS.items()})
    for name, value in settings.items():
        container.with_env(f"KAFKA_{name}", value)
    container.with_env("CLUSTER_ID", "4L6g3nShT-eMCtK--X86sw").start()
    with (folder / "containers").open("a") as started:  # those too that do not answer, below
        started.write(f"{container.get_container_id()}\n")
    container.get_docker_client().client.close()
    bootstrap = f"127.0.0.1:{port}"
    wait_until_answering(bootstrap)
    return KafkaServer(bootstrap, f"Apache Kafka (docker image {IMAGE})")


def _from_packages(folder: Path) -> KafkaServer:
    status = LocalBroker(folder, 0, settings=SHARED_SETTINGS).up()
    bootstrap = status.address.replace("localhost", "127.0.0.1")
    return KafkaServer(bootstrap, f"Apache Kafka {status.version} (python packages)")


def wait_until_answering(bootstrap: str) -> None:
    """Return when a Kafka answers at `bootstrap`; fail the test after a minute."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not answers(bootstrap, timeout_s=1.0):
        if time.monotonic() > deadline:
            pytest.fail(f"Kafka in Docker does not answer at {bootstrap}", pytrace=False)
        time.sleep(0.2)
