"""A real Apache Kafka on this machine, without Docker: started, queried and stopped from Python.

One broker per home folder. Data, settings and logs lie in `home/broker` and survive restarts:

    home/broker/data                the topics
    home/broker/server.properties   rewritten at each start
    home/broker/broker.log          Kafka's output (of the previous start: broker.log.1)
    home/broker/broker.json         the running process
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from filelock import FileLock

from noesium_stream.clock import SystemClock
from noesium_stream.errors import BrokerError
from noesium_stream.log.broker.runtime import KAFKA_VERSION, KafkaRuntime, Progress, runtime, silent
from noesium_stream.log.kafka.probe import answers
from noesium_stream.private_files import FILE_MODE, make_folder, private, write_text

DEFAULT_PORT: Final = 9092
START_TIMEOUT_S: Final = 180.0
STOP_TIMEOUT_S: Final = 60.0
_HOST: Final = "127.0.0.1"
_PORTS: Final = range(20_000, 32_768)
_UMASK: Final = 0o077
"""Topics hold all that agents said: only their owner reads Kafka's files."""
_JAVA_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    # The configuration classes print pages at each start; server.properties has the same values.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)
_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """Status of a broker: `running` says that its process lives, `answering` that it replies to requests."""

    running: bool
    answering: bool
    pid: int | None
    address: str
    version: str
    data_dir: Path
    log_file: Path

    @property
    def url(self) -> str:
        """The address as `--log` takes it."""
        return f"kafka://{self.address}"


class LocalBroker:
    """The broker of one home folder.

    `settings` are added to the broker's own (`server.properties`). `port` 0 takes a free port; `port` None
    takes the port of the previous start, at first 9092.
    """

    def __init__(
        self,
        home: Path,
        port: int | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        progress: Progress = silent,
    ) -> None:
        self._dir = (home / "broker").absolute()
        self._wanted_port = port
        self._settings = dict(settings or {})
        self._progress = progress
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        """The folder of the topics."""
        return self._dir / "data"

    @property
    def log_file(self) -> Path:
        """The file with Kafka's output."""
        return self._dir / "broker.log"

    def up(self) -> BrokerStatus:
        """Start the broker and wait until it answers; do nothing if it already runs.

        Raises:
            BrokerError: the extra `kafka-local` is missing, the port is taken, or it does not come up.
        """
        make_folder(self._dir)
        with FileLock(self._dir / "lock", mode=FILE_MODE, fallback_to_soft=False):
            port = self._port()
            if self._pid() is not None:
                if port != self._last("port"):
                    raise BrokerError(
                        f"the broker of {self._dir} runs already, at localhost:{self._last('port')}.",
                        hint="Stop it first: noesium broker down",
                    )
            else:
                kafka = runtime(self._progress)
                port = self._start(kafka, port)
            self._wait_until_up(port)
        return self.status()

    def down(self) -> bool:
        """Stop the broker cleanly; return False if none ran.

        Raises:
            BrokerError: it does not stop.
        """
        pid = self._pid()
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        if not self._wait_until_gone(pid):
            raise BrokerError(
                f"the broker (process {pid}) has not stopped within {STOP_TIMEOUT_S:.0f} s.",
                hint=f"See {self.log_file}; `kill -9 {pid}` ends it, the next start recovers its data.",
            )
        return True

    def kill(self) -> bool:
        """Kill the broker's process, as a power cut would; return False if none ran."""
        pid = self._pid()
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        self._wait_until_gone(pid)
        return True

    def status(self) -> BrokerStatus:
        """The broker's current status."""
        pid, port = self._pid(), self._last("port") or self._wanted_port or DEFAULT_PORT
        answering = pid is not None and answers(f"{_HOST}:{port}", timeout_s=2.0)
        return BrokerStatus(
            pid is not None, answering, pid, f"localhost:{port}", KAFKA_VERSION, self.data_dir, self.log_file
        )

    def logs(self, lines: int | None = None) -> list[str]:
        """The last `lines` (None: all) lines of Kafka's output.

        Raises:
            BrokerError: no broker was ever started here.
        """
        try:
            text = self.log_file.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            raise BrokerError(
                f"no broker was started in {self._dir}.", hint="Start one with: noesium broker up"
            ) from None
        return text if lines is None else text[-lines:] if lines else []

    def _port(self) -> int:
        if self._wanted_port is None:
            return self._last("port") or DEFAULT_PORT
        return self._wanted_port or self._last("port") or free_port()

    def _start(self, kafka: KafkaRuntime, port: int) -> int:
        if not port_is_free(port):
            raise BrokerError(
                f"port {port} of this machine is taken by another program.",
                hint="Choose another one (noesium broker up --port N); if a Kafka answers there already, "
                f"use it with --log kafka://localhost:{port}.",
            )
        controller = self._last("controller_port")
        if controller in (None, port) or not port_is_free(controller):
            controller = free_port(but=port)
        properties = self._dir / "server.properties"
        write_text(properties, self._properties(port, controller))
        if not (self.data_dir / "meta.properties").exists():
            self._format(kafka, properties)
        if self.log_file.exists():
            self.log_file.replace(self.log_file.with_name("broker.log.1"))
        self._progress(f"starting Apache Kafka {KAFKA_VERSION} at localhost:{port}")
        with open(self.log_file, "wb", opener=private) as log:
            self._child = subprocess.Popen(
                kafka.command("kafka.Kafka", str(properties), options=_JAVA_OPTIONS),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._dir,
                umask=_UMASK,
                start_new_session=True,  # Ctrl-C in the terminal is not for the broker
            )
        process = {"pid": self._child.pid, "port": port, "controller_port": controller}
        _write_whole(self._dir / "broker.json", json.dumps(process))
        return port

    def _properties(self, port: int, controller: int) -> str:
        settings = {
            **_SETTINGS,
            "controller.quorum.voters": f"1@{_HOST}:{controller}",
            "listeners": f"PLAINTEXT://{_HOST}:{port},CONTROLLER://{_HOST}:{controller}",
            # Not `localhost`: where it resolves to ::1 first, every new connection would fail once.
            "advertised.listeners": f"PLAINTEXT://{_HOST}:{port}",
            "log.dirs": str(self.data_dir),
            **self._settings,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _format(self, kafka: KafkaRuntime, properties: Path) -> None:
        command = kafka.command(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            new_cluster_id(),
            "-c",
            str(properties),
            "--ignore-formatted",
        )
        done = subprocess.run(
            command, cwd=self._dir, umask=_UMASK, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BrokerError(f"{self.data_dir} cannot be made ready for Kafka: {_reason(done.stderr)}")

    def _wait_until_up(self, port: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(f"{_HOST}:{port}", timeout_s=1.0):
            if self._pid() is None:
                reason = _reason("\n".join(self.logs()))
                raise BrokerError(
                    f"the broker has ended while it started: {reason}", hint=f"See {self.log_file}."
                )
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the broker does not answer at localhost:{port} (waited for {START_TIMEOUT_S:.0f} s).",
                    hint=f"See {self.log_file}.",
                )
            time.sleep(0.1)

    def _wait_until_gone(self, pid: int) -> bool:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self._pid() == pid:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _last(self, name: str) -> int | None:
        try:
            value: Any = json.loads((self._dir / "broker.json").read_text()).get(name)
        except (FileNotFoundError, ValueError, AttributeError):
            return None
        return value if isinstance(value, int) else None

    def _pid(self) -> int | None:
        """The process id of the broker, if it lives and is this broker (the system reuses process ids)."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None  # reaped here: a child that has ended would else stay a zombie
        pid = self._last("pid")
        if pid is None:
            return None
        return pid if str(self._dir / "server.properties") in _command_line(pid) else None


def _write_whole(path: Path, text: str) -> None:
    """Replace a file atomically: a reader finds the old text or the new one, nothing in between."""
    unfinished = path.with_name(f"{path.name}.new")
    write_text(unfinished, text)
    unfinished.replace(path)


def new_cluster_id() -> str:
    """An id for a new cluster: a UUID in URL-safe base64, 22 characters, as Kafka writes them.

    A UUIDv7 begins with the time. A random id begins with `-` once in 64, and Kafka's tools take that for an
    option.
    """
    return base64.urlsafe_b64encode(UUID(SystemClock().uuid7()).bytes).decode().rstrip("=")


def port_is_free(port: int) -> bool:
    """Whether a program could now listen at this port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def free_port(*, but: int | None = None) -> int:
    """A free port of the loopback address, other than `but`.

    It is none of those that systems give to outgoing connections (from 32,768 on): one could take it before
    its user listens there.
    """
    while True:
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        if port != but and port_is_free(port):
            return port


def _command_line(pid: int) -> str:
    """The command line of a process; empty if there is no such process."""
    proc = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self/cmdline").exists():
        try:
            return proc.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
    done = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout


def _reason(text: str) -> str:
    """The most informative line in the last output of a Java program."""
    lines = text.strip().splitlines() or ["it said nothing"]
    telling = [line for line in lines if " ERROR " in line or "Exception" in line]
    return (telling or lines[-1:])[0].strip()
