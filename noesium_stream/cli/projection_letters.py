"""What is said of events that a projection could not take, while it folds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from noesium_stream.cli.output import note, shorten
from noesium_stream.projection import AttachedProjection
from noesium_stream.projection.letters import Letter, advice_on, position_of
from noesium_stream.projection.manifest import Manifest
from noesium_stream.projection.state_file import StateFile

_LOOK_S: Final = 0.25
_QUIET_S: Final = 10.0
"""Many events may be poison: they are said together."""


def say_letter(name: str, path: Path, letter: Letter, more: int = 0) -> None:
    """Say why an event was not taken, and where all such events of a projection are found.

    Args:
        name: the projection's.
        path: the state file that holds the letter.
        letter: one with a reason.
        more: how many others there are besides.
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
    """Say what an attached projection cannot take, as it comes; letters from before are not said again."""
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
