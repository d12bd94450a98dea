"""`WalledCommand`: what starts a program inside walls, whoever starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WalledCommand:
    """A command that builds walls, writes one byte to say that they stand, and at a line becomes the program.

    Attributes:
        words: the command; the first one is a path.
        environment: its variables, and no others.
        fds: file descriptors that it has to inherit, under the same numbers.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    fds: tuple[int, ...]
