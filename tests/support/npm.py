"""Packages of npm for tests: installed once for all processes, in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="no npm on this machine")
NODE = "node@22.23.3"
"""The kit of MCP needs Node 22; the package of this name holds the program."""


def installed(*packages: str) -> Path:
    """Install packages of exact versions, with what they need; the folder of their programs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "noesium" / "npm"
    name = "-".join(packages).replace("/", "-").replace("@", "")
    folder = cache / name
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{name}.lock"):
        if not (folder / "done").exists():
            words = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder)]
            subprocess.run([*words, *packages], check=True, timeout=600, stdin=subprocess.DEVNULL)
            (folder / "done").touch()
    return folder / "node_modules" / ".bin"
