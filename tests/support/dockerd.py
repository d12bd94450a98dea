"""A Docker daemon for tests: the machine's own, else, where we may, one of our own on a socket of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kafka import IMAGE, docker_daemon_answers, docker_image_at_hand

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def docker_with_image() -> Iterator[dict[str, str]]:
    """The environment in which `docker` has Kafka's image, built here where it cannot be pulled.

    Without a daemon, and without the right or the program to start one, the test fails and says so.
    """
    if docker_daemon_answers():
        _provide_image(dict(os.environ))
        yield dict(os.environ)
        return
    missing = [name for name in ("dockerd", "docker") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        raise AssertionError(
            "no Docker daemon answers, and none can be started: "
            + (f"missing {', '.join(missing)}" if missing else "that takes root")
            + ". apt-get install docker.io docker-compose"
        )
    with tempfile.TemporaryDirectory(prefix="noesium-dockerd-") as folder, _daemon(Path(folder)) as env:
        _provide_image(env)
        yield env


@contextmanager
def _daemon(folder: Path) -> Iterator[dict[str, str]]:
    socket = f"unix://{folder}/docker.sock"
    data = Path(os.environ.get("NOESIUM_DOCKER_DATA", folder / "data"))
    command = ["dockerd", "--data-root", str(data), "--exec-root", f"{folder}/exec"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen([*command, "-p", f"{folder}/pid", "-H", socket], stdout=log, stderr=log)
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = socket
    try:
        deadline = time.monotonic() + 120
        while not docker_daemon_answers():
            assert daemon.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield dict(os.environ)
    finally:
        daemon.terminate()
        daemon.wait(120)
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before


def _provide_image(env: dict[str, str]) -> None:
    if not docker_image_at_hand(IMAGE):
        build = [sys.executable, str(ROOT / "deploy" / "local_image.py"), IMAGE]
        done = subprocess.run(build, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
