"""The compose files: what they say, and both of them brought up, by Docker, with a broker lost on the way."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from noesium_stream.log.broker.docker import DockerBroker, compose_command
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from tests.support.dockerd import ROOT, docker_with_image
from tests.support.events import catalogue, counted, outgoing
from tests.support.kafka import start_kafka, wait_until_answering
from tests.support.ports import free_port
from tests.support.reading import numbers, stored

# The image may have to be built first, which takes minutes.
pytestmark = pytest.mark.timeout(1800)

SINGLE = ROOT / "deploy" / "compose.yaml"
CLUSTER = ROOT / "deploy" / "compose.cluster.yaml"


@pytest.fixture(scope="module")
def docker() -> Iterator[dict[str, str]]:
    with docker_with_image() as env:
        yield env


def services(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())["services"]
    return found


@pytest.mark.parametrize(("file", "brokers"), [(SINGLE, 1), (CLUSTER, 3)])
def test_images_are_pinned_health_is_checked_and_data_lie_on_volumes(file: Path, brokers: int) -> None:
    assert yaml.safe_load(file.read_text())["version"] == "3.8"
    assert len(services(file)) == brokers
    for service in services(file).values():
        assert service["image"] == "${NOESIUM_KAFKA_IMAGE:-apache/kafka:4.2.0}"
        assert service["healthcheck"]["test"]
        [volume] = service["volumes"]
        assert volume.endswith(f":{service['environment']['KAFKA_LOG_DIRS']}")
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_cluster_keeps_three_copies_and_wants_two_of_them_for_a_write() -> None:
    for service in services(CLUSTER).values():
        settings = service["environment"]
        assert settings["KAFKA_DEFAULT_REPLICATION_FACTOR"] == "3"
        assert settings["KAFKA_MIN_INSYNC_REPLICAS"] == "2"
        assert settings["KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR"] == "3"
        assert settings["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == "2"
        assert settings["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] == "3"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[EventLog]:
    log = await open_log(f"{url}?partitions=2", catalogue=catalogue())
    try:
        yield log
    finally:
        await log.close()


@pytest.mark.docker
async def test_the_broker_in_docker_keeps_its_data_between_starts(docker: dict[str, str]) -> None:
    broker = DockerBroker(free_port(), compose_file=SINGLE, project="noesium-test")
    try:
        status = await asyncio.to_thread(broker.up)
        assert status.answering
        async with opened(status.url) as log:
            await log.append([counted(1, "k"), counted(2, "k")])
        assert await asyncio.to_thread(broker.down) is True
        assert not (await asyncio.to_thread(broker.status)).running
        await asyncio.to_thread(broker.up)
        async with opened(status.url) as log:
            await log.append([counted(3, "k"), counted(4, "k")])
            assert numbers(await stored(log, log.topology.events("demo"))) == [1, 2, 3, 4]
        assert await asyncio.to_thread(broker.logs)
    finally:
        compose(docker, SINGLE, "down", "-v")


@pytest.mark.docker
async def test_the_brokers_of_the_tests_come_from_docker_where_a_daemon_answers(
    docker: dict[str, str], tmp_path: Path
) -> None:
    with start_kafka(tmp_path) as server:
        assert "docker image" in server.source
        log = await open_log(server.url("docker") + "&partitions=2", catalogue=catalogue())
        try:
            journal = log.topology.journal("tester")
            await log.ensure_topics([log.topology.spec(journal)])
            # Transactions take more than an open port: the broker writes their markers to itself.
            for first in (0, 10):
                writer = await log.writer("w")
                await writer.commit(outgoing([counted(n) for n in range(first, first + 10)], journal, 0))
            assert numbers(await stored(log, journal)) == list(range(20))
        finally:
            await log.close()


@pytest.mark.docker
async def test_the_cluster_goes_on_when_a_broker_is_killed(docker: dict[str, str]) -> None:
    ports = [free_port() for _ in range(3)]
    env = {**docker, **{f"NOESIUM_KAFKA_PORT_{n}": str(port) for n, port in enumerate(ports, 1)}}
    try:
        compose(env, CLUSTER, "up", "-d")
        for port in ports:
            await asyncio.to_thread(wait_until_answering, f"127.0.0.1:{port}")
        await asyncio.to_thread(wait_for_brokers, f"127.0.0.1:{ports[0]}", 3)
        async with opened("kafka://" + ",".join(f"127.0.0.1:{port}" for port in ports)) as log:
            topic, journal = log.topology.events("demo"), log.topology.journal("tester")
            await log.ensure_topics([log.topology.spec(journal)])
            writer = await log.writer("w")
            await log.append([counted(n, "k") for n in range(10)])
            await writer.commit(outgoing([counted(n) for n in range(10)], journal, 0))
            compose(env, CLUSTER, "kill", "kafka-2")
            await log.append([counted(n, "k") for n in range(10, 20)])
            await log.append([counted(20, "k")])
            again = await log.writer("w")
            await again.commit(outgoing([counted(n) for n in range(10, 20)], journal, 0))
            assert numbers(await stored(log, topic)) == list(range(21))
            assert numbers(await stored(log, journal)) == list(range(20))
    finally:
        compose(env, CLUSTER, "down", "-v")


def wait_for_brokers(bootstrap: str, count: int) -> None:
    """Return when the cluster knows of `count` brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for _ in range(600):
        if len(admin.list_topics(timeout=10).brokers) == count:
            return
    raise AssertionError(f"there are not {count} brokers: {admin.list_topics(timeout=10).brokers}")


def compose(env: dict[str, str], file: Path, *arguments: str) -> None:
    command = [*compose_command(), "-p", "noesium-test", "-f", str(file), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
