"""A Kafka of one broker or of three on this machine; each broker can be killed, paused and restarted.

KRaft: each process is broker and controller. Topics have as many copies as there are brokers (`acks=all`, one
copy may lag behind). A broker has further listeners besides its own, each of which it advertises at another
port of this machine: whoever comes in by one of them stays on it, so that a proxy may stand in between
(`tests/chaos/link.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from noesium_stream.log.broker.local import new_cluster_id
from noesium_stream.log.broker.runtime import KafkaRuntime, runtime
from noesium_stream.log.kafka.probe import KAFKA_LOGGER
from tests.support.ports import free_port

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 120.0
_JAVA_OPTIONS: Final = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)


class Node:
    """One broker: its folder, its ports and, while it runs, its process."""

    def __init__(self, folder: Path, node_id: int, gates: int) -> None:
        self.folder = folder
        self.node_id = node_id
        self.port = free_port()
        self.controller_port = free_port()
        self.gates = [free_port() for _ in range(gates)]
        """The ports that it listens at for those who come by a proxy."""
        self.log_file = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens for those who come without a proxy."""
        return f"{HOST}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether its process runs, or stands still."""
        return self._process is not None and self._process.poll() is None

    def prepare(self, kafka: KafkaRuntime, cluster_id: str, settings: Mapping[str, str]) -> None:
        """Write its settings, and format its storage."""
        self.folder.mkdir(parents=True)
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.folder / "server.properties").write_text(text)
        words = ("format", "-t", cluster_id, "-c", "server.properties")
        command = kafka.command("kafka.tools.StorageTool", *words)
        subprocess.run(command, cwd=self.folder, capture_output=True, check=True, timeout=START_TIMEOUT_S)

    def start(self, kafka: KafkaRuntime) -> None:
        """Start its process; who needs it to answer waits for that."""
        assert not self.alive, f"broker {self.node_id} runs already"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                kafka.command("kafka.Kafka", "server.properties", options=_JAVA_OPTIONS),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        """Send a signal to its process."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end; harmless where it has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(START_TIMEOUT_S)

    def stop(self) -> None:
        """SIGTERM, and wait for its end: leaders move away first."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        self._process.wait(START_TIMEOUT_S)


class Cluster:
    """Brokers that run between `up` and `down`.

    Args:
        folder: for their data.
        count: how many.
        gates: ports that a lone broker advertises: for each it has a listener, whose own port is at the same
            place of `nodes[0].gates`.
        settings: for all brokers, above what is set here.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        *,
        gates: Sequence[int] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        assert count == 1 or not gates, "a proxy stands before a lone broker only"
        self.nodes = [Node(folder / f"broker{n}", n, len(gates)) for n in range(1, count + 1)]
        self._advertised = list(gates)
        self._settings = dict(settings or {})
        self._kafka = runtime()

    @property
    def bootstrap(self) -> str:
        """Where the brokers answer, without a proxy."""
        return ",".join(node.address for node in self.nodes)

    async def up(self) -> None:
        """Format, start, and wait until all of them are in the cluster."""
        cluster_id = new_cluster_id()
        for node in self.nodes:
            settings = self._settings_of(node)
            await asyncio.to_thread(node.prepare, self._kafka, cluster_id, settings)
            node.start(self._kafka)
        await self.whole()

    def down(self) -> None:
        """End all of them, as a power cut would."""
        for node in self.nodes:
            node.kill()

    def start(self, node: Node) -> None:
        """Start one again."""
        node.start(self._kafka)

    async def whole(self) -> float:
        """Return the seconds until all brokers answer, and every partition has all its copies and a leader.

        Raises:
            TimeoutError: not within `START_TIMEOUT_S`.
        """
        begun = time.monotonic()
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await asyncio.to_thread(self._is_whole):
                await asyncio.sleep(0.2)
        return time.monotonic() - begun

    def _is_whole(self) -> bool:
        quick = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 2000}
        # Each is asked itself: a broker that came back may know less than the others.
        for node in self.nodes:
            assert node.alive, f"broker {node.node_id} has ended: see {node.log_file}"
            admin = AdminClient({"bootstrap.servers": node.address, **quick}, logger=KAFKA_LOGGER)
            try:
                seen = admin.list_topics(timeout=2.0)
            except KafkaException:
                return False
            if len(seen.brokers) < len(self.nodes):
                return False
            for topic in seen.topics.values():
                for partition in topic.partitions.values():
                    if partition.leader < 0 or len(partition.isrs) < len(partition.replicas):
                        return False
        return True

    def _settings_of(self, node: Node) -> dict[str, str]:
        count = len(self.nodes)
        names = [f"GATE{n}" for n in range(len(node.gates))]
        inside = [f"PLAINTEXT://{node.address}"]
        own = zip(names, node.gates, strict=True)
        advertised = zip(names, self._advertised, strict=True)
        copies, enough = str(count), str(max(1, count - 1))
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{other.node_id}@{HOST}:{other.controller_port}" for other in self.nodes
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "CONTROLLER", *names)
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join(
                [
                    *inside,
                    f"CONTROLLER://{HOST}:{node.controller_port}",
                    *(f"{name}://{HOST}:{port}" for name, port in own),
                ]
            ),
            "advertised.listeners": ",".join(
                [*inside, *(f"{name}://{HOST}:{port}" for name, port in advertised)]
            ),
            "log.dirs": str(node.folder / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            "min.insync.replicas": enough,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": enough,
            "transaction.state.log.num.partitions": "3",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": enough,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            **self._settings,
        }
