"""DOCX through python-docx: headings, lists, tables; what is no DOCX is damaged."""

from __future__ import annotations

import io

import docx
import pytest

from agents.documents.blocks import DamagedError
from agents.documents.parsers.docx import parse
from agents.documents.passages import passages_of


def made() -> bytes:
    document = docx.Document()
    document.add_heading("Harbour", 1)
    document.add_heading("Lights", 2)
    document.add_paragraph("Two lights show the way in.")
    document.add_paragraph("green to starboard", style="List Bullet")
    table = document.add_table(2, 2)
    for cell, text in zip(table._cells, ("light", "meaning", "red", "closed"), strict=True):
        cell.text = text
    document.add_heading("Fees", 2)
    document.add_paragraph("A night costs twelve euros.")
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def test_text_lists_and_tables_lie_under_their_headings() -> None:
    parsed = parse(made(), "harbour.docx")
    assert parsed.title == "Harbour"
    lights, fees = passages_of(parsed)
    assert lights.heading == "Harbour > Lights"
    assert [(unit.kind, unit.text) for unit in lights.units] == [
        ("prose", "Two lights show the way in."),
        ("item", "green to starboard"),
        ("head", "light | meaning"),
        ("row", "red | closed"),
    ]
    assert (fees.heading, fees.text) == ("Harbour > Fees", "A night costs twelve euros.")
    assert (lights.start_line, lights.end_line, lights.page) == (None, None, None)


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\x03\x04 no archive", made()[:-200], made()[200:]],
    ids=["empty", "no archive", "without its end", "without its head"],
)
def test_what_is_no_docx_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedError):
        parse(data, "a.docx")
