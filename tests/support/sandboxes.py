"""The sandboxes of this machine, and programs that try something in one."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import SandboxError
from noesium_stream.tool.sandbox import Limits, Sandbox, SandboxResult, Walls, find_sandbox
from tests.support.reading import PATIENCE_S

PATIENT = Limits(wall_s=PATIENCE_S)
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def sandbox_named(name: str) -> Sandbox:
    try:
        return find_sandbox(name)
    except SandboxError as error:
        pytest.skip(str(error))


def alive(mark: str) -> list[str]:
    """Processes of this machine that have a mark in their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


async def shell(
    sandbox: Sandbox, workspace: Path, script: str, *, stdin: bytes = b"", **walls: Any
) -> SandboxResult:
    """Run a script in a workspace that can be read, if nothing else is said."""
    made = Walls(workspace, **{"readable": ("**",), "limits": PATIENT, **walls})
    return await sandbox.run(["/bin/sh", "-c", script], made, stdin=stdin)


async def python(sandbox: Sandbox, workspace: Path, code: str, **walls: Any) -> SandboxResult:
    made = Walls(workspace, **{"readable": ("**",), "limits": PATIENT, **walls})
    return await sandbox.run([PYTHON, "-I", "-c", code], made)


Shell = Callable[..., Awaitable[SandboxResult]]
