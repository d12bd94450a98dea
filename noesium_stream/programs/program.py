"""A program, and in what surroundings it runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noesium_stream.errors import ConfigError

MAX_LINE: Final = 1_000_000
"""Most bytes of an answer by default: what a record may have."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command and its surroundings; no shell reads it.

    Attributes:
        command: the program and its arguments.
        environment: the variables that it gets, and no others: `NAME` from the worker's own environment,
            `NAME=VALUE` as it is.
        folder: its current folder; None: an empty one, which is removed with it.
        max_answer: most bytes of an answer, and of a line.
    """

    command: tuple[str, ...]
    environment: tuple[str, ...] = ("PATH",)
    folder: Path | None = None
    max_answer: int = MAX_LINE

    @property
    def name(self) -> str:
        """The program's name, for people."""
        return Path(self.command[0]).name

    def check(self, who: str) -> None:
        """Refuse a command that cannot be one.

        Raises:
            ConfigError
        """
        words = self.command
        if isinstance(words, str) or not words or not all(isinstance(word, str) for word in words):
            raise ConfigError(
                f"The command of {who} is {words!r}.",
                hint='Give the program and its arguments as texts, each for itself: ["jq", "-c", "."]. '
                "There is no shell.",
            )
        if any("\0" in word for word in words) or not words[0]:
            raise ConfigError(f"The command of {who} has an empty name, or a NUL: {words!r}.")
        for said in self.environment:
            name = said.partition("=")[0]
            if not name or "," in name or "\0" in said:
                raise ConfigError(f"{who} names the variable {said!r}.", hint="Write NAME or NAME=VALUE.")
        if self.max_answer < 1:
            raise ConfigError(f"max_answer of {who} is {self.max_answer}: an answer has a byte at least.")

    def path(self, outer: Mapping[str, str]) -> str | None:
        """Where the program is; None: it is not here. `outer` is the worker's environment."""
        word = self.command[0]
        if os.sep in word and not os.path.isabs(word) and self.folder is not None:
            word = str(self.folder / word)
        found = shutil.which(word, path=outer.get("PATH", os.defpath))
        return None if found is None else os.path.abspath(found)

    def variables(self, outer: Mapping[str, str]) -> dict[str, str]:
        """Its environment; a name that the worker does not have is left out."""
        found: dict[str, str] = {}
        for said in self.environment:
            name, given, value = said.partition("=")
            if given:
                found[name] = value
            elif name in outer:
                found[name] = outer[name]
        return found

    def not_here(self, who: str) -> str:
        """The message about a program that is missing."""
        return f"{who} cannot be started: {self.command[0]} is not on this machine, or is not executable."


def program(
    command: Sequence[str], environment: Sequence[str], folder: str | Path | None, max_answer: int, who: str
) -> Program:
    """A checked program.

    Raises:
        ConfigError: a part of it is not valid.
    """
    made = Program(
        command if isinstance(command, str) else tuple(command),  # type: ignore[arg-type]
        tuple([environment] if isinstance(environment, str) else environment),
        None if folder is None else Path(folder),
        max_answer,
    )
    made.check(who)
    return made
