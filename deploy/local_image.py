"""Build an image with the contract of `apache/kafka` where no image registry is at hand.

    python deploy/local_image.py [TAG]      (default: NOESIUM_KAFKA_IMAGE, else apache/kafka:4.2.0)

A Debian root file system with a Java 17 runtime (debootstrap, from the machine's own apt sources), Kafka's
jars (from the Python package jgo), and as command the entry point of the official image, which is a class of
Kafka's own jars. Needs root, debootstrap and a running Docker daemon; takes two minutes and 400 MB.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from noesium_stream.log.broker_runtime import runtime

IMAGE = os.environ.get("NOESIUM_KAFKA_IMAGE", "apache/kafka:4.2.0")
PACKAGES = "openjdk-17-jre-headless,ca-certificates"
SUITE = "bookworm"
MIRROR = re.compile(r"^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(https?://\S+?)/?(?:\s|$)", re.MULTILINE)

START = """#!/bin/bash
export LANG=C.UTF-8
# Data of an earlier start are formatted already, which is no failure.
said=$(java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \\
  --default-configs-dir /etc/kafka/docker --mounted-configs-dir /mnt/shared/config \\
  --final-configs-dir /opt/kafka/config 2>&1) \\
  || grep -qi "already formatted" <<< "$said" || { echo "$said"; exit 1; }
exec java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \\
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \\
  -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
"""

SERVER = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=/var/lib/kafka/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""

LOG4J = """Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: "INFO"
      AppenderRef:
        - ref: STDOUT
"""


def main(tag: str) -> None:
    """Build and tag the image."""
    with tempfile.TemporaryDirectory(prefix="noesium-image-") as folder:
        root = Path(folder) / "root"
        debootstrap(root)
        install_kafka(root)
        import_image(root, tag)
    tell(f"built {tag}")


def tell(text: str) -> None:
    """A line for people."""
    sys.stderr.write(f"{text}\n")


def debootstrap(root: Path) -> None:
    """A Debian with Java in `root`."""
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), mirror()]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
    shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)


def mirror() -> str:
    """The Debian mirror that this machine uses itself.

    Raises:
        SystemExit: it uses none.
    """
    sources = Path("/etc/apt")
    files = [*sources.glob("sources.list"), *sources.glob("sources.list.d/*.list")]
    files += sources.glob("sources.list.d/*.sources")
    for file in files:
        found = MIRROR.search(file.read_text())
        if found and "security" not in found[1]:
            return found[1]
    raise SystemExit("no Debian mirror is named in /etc/apt")


def install_kafka(root: Path) -> None:
    """Kafka where the official image has it."""
    libs = root / "opt/kafka/libs"
    shutil.copytree(runtime(tell).jars, libs)
    defaults = root / "etc/kafka/docker"
    defaults.mkdir(parents=True)
    (defaults / "server.properties").write_text(SERVER)
    (defaults / "log4j2.yaml").write_text(LOG4J)
    (defaults / "tools-log4j2.yaml").write_text(LOG4J)
    for name in ("opt/kafka/config", "mnt/shared/config", "var/lib/kafka/data"):
        (root / name).mkdir(parents=True)
    start = root / "etc/kafka/docker/run"
    start.write_text(START)
    start.chmod(0o755)


def import_image(root: Path, tag: str) -> None:
    """Hand the file system to Docker."""
    changes = ['CMD ["/etc/kafka/docker/run"]', "EXPOSE 9092", "ENV PATH=/usr/local/bin:/usr/bin:/bin"]
    options = [part for change in changes for part in ("--change", change)]
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        command = ["docker", "import", *options, "-", tag]
        subprocess.run(command, check=True, stdin=tar.stdout, stdout=sys.stderr)
    if tar.returncode != 0:
        raise SystemExit("packing the image has failed")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else IMAGE)
