"""Environments of the peers: made once from package registries, and kept in a folder outside the repository.

The versions are those of `versions.toml`. What one registry refuses is the reason of one system alone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tomllib
import venv
from asyncio.subprocess import PIPE, STDOUT, create_subprocess_exec
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.bench.harness import progress

HERE = Path(__file__).parent
VERSIONS: Mapping[str, Any] = tomllib.loads((HERE / "versions.toml").read_text())
STREAMS = HERE / "streams"
_LIMIT_S = 900.0
_SHOWN_CHARACTERS = 300


class NotInstalledError(Exception):
    """A peer that cannot be had here; the message is what the table says of it."""


def default_folder() -> Path:
    """The user's cache folder for peers."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "noesium-bench" / "peers"


class Installer:
    """Installs each peer when it is first asked for.

    Args:
        folder: for the environments; one that is complete is not made again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def python(self, name: str) -> Path:
        """The Python of a virtual environment with the packages of this peer.

        Raises `NotInstalledError`.
        """
        packages = VERSIONS["python"][name]
        folder = self._place(name, packages)
        python = folder / "bin" / "python"
        if not (folder / "ready").exists():
            progress(f"  making an environment with {', '.join(packages)}")
            await asyncio.to_thread(venv.create, folder, with_pip=True, clear=True)
            await _run([str(python), "-m", "pip", "install", "--quiet", *packages], folder)
            (folder / "ready").touch()
        return python

    async def npm(self, name: str) -> Path:
        """The folder of `node_modules` with this package; its scripts are not executed.

        Raises `NotInstalledError`.
        """
        package = VERSIONS["npm"][name]
        folder = self._fresh(f"npm-{name}", [package])
        if not (folder / "ready").exists():
            progress(f"  installing {package}")
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
            await _run([_tool("npm"), "install", *options, package], folder)
            (folder / "ready").touch()
        return folder / "node_modules"

    async def go(self, name: str, minutes: float) -> Path:
        """The program that Go builds of this module, within so many minutes.

        Raises `NotInstalledError`.
        """
        module = VERSIONS["go"][name]
        folder = self._fresh(f"go-{name}", [module])
        program = folder / module.partition("@")[0].rpartition("/")[2]
        if not program.exists():
            progress(f"  building {module}, {minutes:g} minutes at most")
            environment = {"GOBIN": str(folder), "GOFLAGS": "-modcacherw"}
            await _run([_tool("go"), "install", module], folder, environment, 60 * minutes)
        return program

    async def maven(self) -> Path:
        """The folder of the compiled program of Kafka Streams and the jars that it needs.

        Raises `NotInstalledError`.
        """
        sources = sorted(path for path in STREAMS.rglob("*") if path.suffix in (".xml", ".java"))
        folder = self._fresh("streams", [path.read_text() for path in sources])
        if not (folder / "ready").exists():
            progress("  building the program of Kafka Streams")
            for path in sources:
                target = folder / path.relative_to(STREAMS)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
            goals = ["compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
            await _run([_tool("mvn"), "-q", "-B", *goals], folder)
            (folder / "ready").touch()
        return folder

    def _place(self, name: str, what: Sequence[str]) -> Path:
        return self._folder / f"{name}-{sha256(repr((sys.version, what)).encode()).hexdigest()[:12]}"

    def _fresh(self, name: str, what: Sequence[str]) -> Path:
        folder = self._place(name, what)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotInstalledError(f"{name} is not installed")
    return found


async def _run(
    command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None, limit_s: float = _LIMIT_S
) -> None:
    """Run an installer to its end; its last line is the reason where it fails."""
    environment = {**os.environ, **(more or {})}
    process = await create_subprocess_exec(*command, cwd=folder, env=environment, stdout=PIPE, stderr=STDOUT)
    name = Path(command[0]).name
    try:
        out, _ = await asyncio.wait_for(process.communicate(), limit_s)
    except TimeoutError:
        raise NotInstalledError(f"{name} took longer than {limit_s / 60:g} minutes") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = [line for line in out.decode(errors="replace").splitlines() if line.strip()] or ["nothing"]
        raise NotInstalledError(f"{name} failed: {said[-1].strip()[:_SHOWN_CHARACTERS]}")
