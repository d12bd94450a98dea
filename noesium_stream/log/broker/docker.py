"""The broker of `deploy/compose.yaml`: Apache Kafka in Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from noesium_stream.errors import BrokerError
from noesium_stream.log.broker.local import DEFAULT_PORT, BrokerStatus
from noesium_stream.log.broker.runtime import KAFKA_VERSION, Progress, silent
from noesium_stream.log.kafka.probe import answers

START_TIMEOUT_S: Final = 180.0
PROJECT: Final = "noesium"


class DockerBroker:
    """The containers of a compose file. Data lie on Docker volumes and survive restarts."""

    def __init__(
        self,
        port: int | None = None,
        *,
        compose_file: Path | None = None,
        project: str = PROJECT,
        progress: Progress = silent,
    ) -> None:
        self._port = port or DEFAULT_PORT
        self._file = compose_file
        self._project = project
        self._progress = progress

    def up(self) -> BrokerStatus:
        """Start the containers and wait until Kafka answers; do nothing if they already run.

        Raises:
            BrokerError: Docker, the compose file or the image is missing, or it does not answer.
        """
        self._progress(f"starting Apache Kafka in Docker at localhost:{self._port}")
        self._compose("up", "-d")
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(f"127.0.0.1:{self._port}", timeout_s=1.0):
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the broker in Docker does not answer at localhost:{self._port} "
                    f"(waited for {START_TIMEOUT_S:.0f} s).",
                    hint="See what it says: noesium broker logs --docker",
                )
            time.sleep(0.2)
        return self.status()

    def down(self) -> bool:
        """Stop and remove the containers but not their data; return False if none ran."""
        running = bool(self._compose("ps", "-q").strip())
        self._compose("down")
        return running

    def status(self) -> BrokerStatus:
        """The broker's current status; `data_dir` and `log_file` lie in Docker."""
        running = bool(self._compose("ps", "-q").strip())
        answering = running and answers(f"127.0.0.1:{self._port}", timeout_s=2.0)
        file = self._compose_file()
        return BrokerStatus(running, answering, None, f"localhost:{self._port}", KAFKA_VERSION, file, file)

    def logs(self, lines: int | None = None) -> list[str]:
        """The last `lines` (None: all) lines of the containers' logs."""
        text = self._compose("logs", "--no-color").splitlines()
        return text if lines is None else text[-lines:] if lines else []

    def _compose_file(self) -> Path:
        if self._file is not None:
            candidates = [self._file]
        else:
            checkout = Path(__file__).resolve().parents[3]
            candidates = [Path("deploy/compose.yaml"), checkout / "deploy" / "compose.yaml"]
        for candidate in candidates:
            if candidate.is_file():
                return candidate.absolute()
        raise BrokerError(
            f"there is no {candidates[0]} here.",
            hint="Run it in a checkout of noesium-stream; without Docker it is: noesium broker up",
        )

    def _compose(self, *arguments: str) -> str:
        command = [*compose_command(), "-p", self._project, "-f", str(self._compose_file()), *arguments]
        environment = {**os.environ, "NOESIUM_KAFKA_PORT": str(self._port)}
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise BrokerError(
                f"{' '.join(command[:2])} {arguments[0]} has failed: {said[-1] if said else done.returncode}",
                hint="Is the Docker daemon running, and the image at hand (NOESIUM_KAFKA_IMAGE)? "
                "Without Docker: noesium broker up",
            )
        return done.stdout


def compose_command() -> list[str]:
    """`docker compose` if the plugin is installed, else `docker-compose`.

    Raises:
        BrokerError: neither is installed.
    """
    if shutil.which("docker"):
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if plugin.returncode == 0:
            return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise BrokerError(
        "Docker Compose is not installed.",
        hint="Install it, or start the broker without Docker: noesium broker up",
    )
