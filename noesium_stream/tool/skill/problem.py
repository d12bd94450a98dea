"""What is wrong with a skill folder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SkillProblem:
    """One thing that is wrong with a skill folder.

    Attributes:
        path: the file that it is in, relative to the folder, POSIX.
        line: its line, from 1; None: the whole file.
        message: one sentence.
        advice: whether the folder is valid all the same.
    """

    path: str
    line: int | None
    message: str
    advice: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"

    @property
    def place(self) -> str:
        """File and line."""
        return self.path if self.line is None else f"{self.path}:{self.line}"

    @property
    def at(self) -> tuple[str, int]:
        """What problems are sorted by."""
        return self.path, self.line or 0
