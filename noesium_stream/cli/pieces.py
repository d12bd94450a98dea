"""Pieces of a run's answer on a terminal or in a pipe, as they come, and the progress of its tools."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from noesium_stream.cli.output import json_text, note, progress_part, result_part, shorten
from noesium_stream.client import Run
from noesium_stream.errors import NoesiumError
from noesium_stream.event.rules.stream_pieces import Piece
from noesium_stream.event.rules.stream_progress import ToolProgress

_WIDTH: Final = 100


async def show_progress(run: Run) -> None:
    """Print what tools tell of the run's calls until it has ended; if it cannot be read, say so."""
    try:
        async with aclosing(run.progress()) as told:
            async for one in told:
                note(progress_text(one))
    except NoesiumError as error:
        note(f"The progress of tools cannot be shown: {error.message}")


def progress_text(told: ToolProgress) -> str:
    """The line of one call's progress: `  TOOL  3 of 9  MESSAGE`."""
    amount = f"{told.done:g}" if told.total is None else f"{told.done:g} of {told.total:g}"
    parts = (shorten(told.tool, _WIDTH), amount, shorten(told.message, _WIDTH))
    return "".join(f"  {part}" for part in parts if part)


class PiecePrinter:
    """Prints pieces: texts one after the other, any other value on a line of its own.

    Args:
        as_result: on standard output, as the result; else on standard error, as progress.

    Attributes:
        printed: whether a piece was printed.
    """

    def __init__(self, *, as_result: bool) -> None:
        self.printed = False
        self._line = result_part if as_result else progress_part
        self._task: tuple[int, str] | None = None

    async def follow(self, run: Run) -> None:
        """Print the pieces of a run until it has ended; if they cannot be read, say so."""
        try:
            async with aclosing(run.pieces()) as pieces:
                async for piece in pieces:
                    self.show(piece)
        except NoesiumError as error:
            note(f"The pieces of the answer cannot be shown: {error.message}")
        self._line.end()

    def show(self, piece: Piece) -> None:
        """Print one piece, and what has to be said before it."""
        task = (piece.step, piece.task_path)
        if task != self._task or piece.restarted:
            self._line.end()
        self._task = task
        if piece.restarted:
            note(f"  {piece.node} begins again: what came of it before is void")
        elif piece.missing:
            note(f"  {piece.missing:,} pieces of {piece.node} are lost")
        self.printed = True
        if isinstance(piece.data, str):
            self._line.add(piece.data)
        else:
            self._line.end()
            self._line.add(f"{json_text(piece.data)}\n")
