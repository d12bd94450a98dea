"""Notes about dead letters of a projection while it folds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from noesium_stream.cli.output import note, shorten
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.fold.dead_letters import Letter, advice_on, position_of
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.state_file import StateFile

_LOOK_S: Final = 0.25
_QUIET_S: Final = 10.0
"""Time over which dead letters are reported together, in seconds: there may be many."""


def say_letter(name: str, path: Path, letter: Letter, more: int = 0) -> None:
    """Print why an event became a dead letter, and how to list the projection's dead letters.

    Args:
        name: name of the projection.
        path: the state file that holds the letter.
        letter: the letter, with its reason.
        more: number of further letters.
    """
    others = f" ({more:,} more)" if more else ""
    note(
        f"could not be taken: {letter.event_type} at {position_of(path, letter)}: "
        f"{shorten(letter.why or '', 300)}{others}"
    )
    advice = advice_on(letter)
    if advice is not None:
        note(f"  {advice}")
    note(f"  All of them: noesium dlq list {name}")


async def say_new_letters(attached: AttachedProjection) -> None:
    """Report new dead letters of an attached projection as they come, but not earlier ones."""
    seen: dict[StateFile, Manifest] = {}
    while True:
        new = 0
        first: tuple[Path, Letter] | None = None
        files = {fold.file: fold for fold in attached.folds.values()}
        seen = {file: seen.get(file, file.found) for file in files}
        for file, fold in files.items():
            before, now = seen[file], file.manifest
            seen[file] = now
            if now.held > before.held:
                new += now.held - before.held
                found = _first(fold.letters(), before.cursor)
                first = first or (None if found is None else (file.path, found))
        if first is not None:
            say_letter(attached.projection.name, *first, more=new - 1)
        await asyncio.sleep(_LOOK_S if first is None else _QUIET_S)


def _first(letters: Iterable[Letter], cursor: int) -> Letter | None:
    return next((one for one in letters if one.reason is not None and one.offset >= cursor), None)
