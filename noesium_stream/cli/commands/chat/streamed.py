"""The answer of a turn on the terminal: in pieces while it comes, and what is missing of it at its end."""

from __future__ import annotations

from noesium_stream.cli.output import note, out_lines, result_part
from noesium_stream.event.rules.stream_pieces import Piece

RESPOND = "respond"
"""The node of a conversation that answers."""


class StreamedAnswer:
    """Prints the pieces of one answer after the other.

    Pieces come by another topic than the answer, which alone counts: late ones are dropped, and what was not
    printed in pieces is printed with the answer.
    """

    def __init__(self) -> None:
        self._shown = ""
        self._over = -1
        self._step = -1

    def note_step(self, step: int) -> None:
        """The superstep in which the agent answers now."""
        self._step = max(self._step, step)

    def show(self, piece: Piece) -> None:
        """Print a piece of the answer that is being written."""
        if piece.node != RESPOND or piece.step <= self._over or not isinstance(piece.data, str):
            return
        if piece.restarted and self._shown:
            result_part.end()
            note("  the answer begins again: what came of it before is void")
            self._shown = ""
        self._step = max(self._step, piece.step)
        self._shown += piece.data
        result_part.add(piece.data)

    def finish(self, answer: str) -> None:
        """Print what is missing of the answer, and end it."""
        shown, self._shown, self._over = self._shown, "", self._step
        if not shown:
            out_lines(answer)
        elif answer.startswith(shown):
            result_part.add(answer[len(shown) :])
            result_part.end()
        else:
            result_part.end()
            out_lines(answer)
