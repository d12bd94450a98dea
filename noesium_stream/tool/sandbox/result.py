"""`SandboxResult`: how a program in a sandbox ended, and what it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Ended(StrEnum):
    """How a program in a sandbox ended: by itself, or killed at which limit."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    PROCESSES = "processes"
    CPU = "cpu"
    DISK = "disk"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """A program in a sandbox has ended, and all that it had started.

    Attributes:
        exit_code: as a shell counts it: 128 plus the number of a signal.
        stdout, stderr: the first bytes of each, at most `Limits.output_bytes`.
        stdout_cut, stderr_cut: how many bytes followed, at least where the end came by a limit.
        duration_s: seconds from start to end.
        ended: see `Ended`.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    stdout_cut: int
    stderr_cut: int
    duration_s: float
    ended: Ended

    def as_json(self) -> dict[str, Any]:
        """The result as a tool gives it: texts in UTF-8, with replacements; counts of cut bytes if not 0."""
        cut = {"stdout_cut": self.stdout_cut, "stderr_cut": self.stderr_cut}
        return {
            "exit_code": self.exit_code,
            "stdout": self.stdout.decode(errors="replace"),
            "stderr": self.stderr.decode(errors="replace"),
            **{name: count for name, count in cut.items() if count},
            "ended": self.ended.value,
        }
