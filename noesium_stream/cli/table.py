"""Tables for people: columns of cells, whose width rich measures as a terminal shows them.

Decision record: rich's own `Table` takes 2 ms for each row, and draws the same without frame and wrapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from noesium_stream.cli.output import dim, out
from noesium_stream.escapes import escaped


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    below: Sequence[str | Sequence[str]] = (),
) -> None:
    """Print columns of minimal width; those in `right` (by number) are right-aligned.

    Nothing is cut or wrapped. `below` has a line for each row, or several, printed indented under the row;
    empty: no line.
    """
    cells = [[escaped(text) for text in row] for row in (header, *rows)]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(header))]
    for number, row in enumerate(cells):
        line = "  ".join(
            _padded(text, width, column in right)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        out(dim(line) if number == 0 else line)
        if 0 < number <= len(below) and below[number - 1]:
            given = below[number - 1]
            for text in (given,) if isinstance(given, str) else given:
                out(f"  {escaped(text)}")


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space
