"""Python, PDF and text give units with the right headings and places; bytes become text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.documents.blocks import BinaryError, DamagedError
from agents.documents.decoding import decode
from agents.documents.parsers import pdf, python, text
from agents.documents.passages import Passage, passages_of
from noesium_stream.clock import VirtualClock
from tests.support.pdf import make_pdf


def one(passages: list[Passage], part: str) -> Passage:
    [passage] = [passage for passage in passages if part in passage.text]
    return passage


PYTHON = '''"""Tools for tides.

More about them.
"""

LIMIT = 3


class Gauge:
    """Reads levels."""

    def level(self, when: int) -> float:
        """The level at `when`."""
        return 1.0


@decorated
def helper():
    return 2
'''


def test_python_has_qualified_names_and_exact_lines() -> None:
    document = python.parse(PYTHON.encode(), "tools/tides.py")
    passages = passages_of(document)
    assert document.title == "tools.tides: Tools for tides"
    found = [(p.heading, u.kind, u.text, u.first, u.last) for p in passages for u in p.units]
    assert found == [
        ("", "prose", "Tools for tides.", 1, 1),
        ("", "prose", "More about them.", 3, 3),
        ("", "code", "LIMIT = 3", 6, 6),
        ("Gauge", "code", "class Gauge:", 9, 9),
        ("Gauge", "prose", "Reads levels.", 10, 10),
        ("Gauge > level", "code", "def level(self, when: int) -> float:", 12, 12),
        ("Gauge > level", "prose", "The level at `when`.", 13, 13),
        ("Gauge > level", "code", "return 1.0", 14, 14),
        ("helper", "code", "@decorated\ndef helper():", 17, 18),
        ("helper", "code", "return 2", 19, 19),
    ]
    assert "return 1.0" not in one(passages, "def level").text


def test_docstrings_lose_their_quotes_indentation_and_roles() -> None:
    source = 'def f(a):\n\t"""Do :func:`it`.\n\n\t:param a: the ``thing``\n\n\t\t>>> f(1)\n\t"""\n'
    passages = passages_of(python.parse(source.encode(), "a.py"))
    assert [(u.kind, u.text, u.first, u.last) for p in passages for u in p.units] == [
        ("code", "def f(a):", 1, 1),
        ("prose", "Do it.", 2, 2),
        ("item", "a: the `thing`", 4, 4),
        ("code", ">>> f(1)", 6, 6),
    ]


def test_python_that_does_not_parse_is_read_as_text() -> None:
    document = python.parse(b"print 'old'\n", "a.py")
    assert document.note == "not valid Python, read as text"
    assert passages_of(document)[0].text == "print 'old'"


def test_a_coding_line_is_obeyed() -> None:
    document = python.parse("# coding: latin-1\nX = 'é'\n".encode("latin-1"), "a.py")
    assert "é" in passages_of(document)[0].text


def test_deeply_nested_python_does_no_harm() -> None:
    python.parse(b"x = " + b"(" * 5000 + b")" * 5000, "a.py")
    python.parse(b"x = " + b"-" * 50_000 + b"1", "a.py")


def test_a_pdf_has_pages_and_no_running_headers() -> None:
    pages = [["Manual 7", f"The {word} page has words of its own.", f"Page {n}"] for n, word in
             enumerate(["first", "second", "third"], 1)]  # fmt: skip
    document = pdf.parse(make_pdf(pages, "A manual"), "a.pdf")
    passages = passages_of(document)
    assert document.title == "A manual"
    assert [(p.page, p.text) for p in passages] == [
        (1, "The first page has words of its own."),
        (2, "The second page has words of its own."),
        (3, "The third page has words of its own."),
    ]
    assert passages[0].start_line is None


def test_a_pdf_that_is_none_says_so() -> None:
    with pytest.raises(DamagedError, match="not a PDF"):
        pdf.parse(b"<html>404</html>", "a.pdf")


@given(st.data())
def test_a_damaged_pdf_is_read_or_refused_and_never_anything_else(data: st.DataObject) -> None:
    whole = bytearray(make_pdf([["One line."], ["Another line."]]))
    for _ in range(data.draw(st.integers(1, 20))):
        whole[data.draw(st.integers(9, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(9, len(whole)))
    with contextlib.suppress(DamagedError):
        pdf.parse(bytes(whole[:cut]), "a.pdf")


def test_a_slow_pdf_is_read_as_far_as_the_time_goes() -> None:
    class Slow(VirtualClock):
        def monotonic(self) -> float:
            self.advance(6)
            return super().monotonic()

    document = pdf.parse(make_pdf([[f"Line {n}."] for n in range(10)]), "a.pdf", Slow())
    assert document.note == "only the first 2 of 10 pages were read"


def test_text_of_other_encodings_is_read() -> None:
    assert decode("Grüße".encode("utf-16")) == "Grüße"
    assert decode("Grüße".encode("cp1252")) == "Grüße"
    assert decode(b"\xef\xbb\xbfx") == "x"


@pytest.mark.parametrize("data", [b"a\0b", bytes(range(1, 9)) * 50, b"\x7fELF\0\0"])
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(BinaryError):
        decode(data)


def test_a_text_has_its_first_line_as_title_and_paragraphs_with_their_lines() -> None:
    document = text.parse(b"----\nThe title\n\nOne. Two\nthree.\n\n- item\n\n    code\n", "a.txt")
    assert document.title == "The title"
    assert [(u.kind, u.text, u.first, u.last) for p in passages_of(document) for u in p.units] == [
        ("prose", "The title", 2, 2),
        ("prose", "One.", 4, 4),
        ("prose", "Two three.", 4, 5),
        ("item", "- item", 7, 7),
        ("code", "code", 9, 9),
    ]
