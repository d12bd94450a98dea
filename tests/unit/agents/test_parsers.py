"""Every format gives passages with the right headings and the right places."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.documents.blocks import BinaryError, DamagedError
from agents.documents.decoding import decode
from agents.documents.parsers import html, markdown, pdf, python, rst, text
from agents.documents.passages import MOST_CHARACTERS, Passage, identifier_words, passages_of
from noesium_stream.clock import VirtualClock
from tests.support.pdf import make_pdf


def one(passages: list[Passage], part: str) -> Passage:
    [passage] = [passage for passage in passages if part in passage.text]
    return passage


def assert_lines_are_those_of_the_file(passages: list[Passage], source: str) -> None:
    lines = source.split("\n")
    for passage in passages:
        assert passage.start_line is not None
        assert passage.text == "\n".join(lines[passage.start_line - 1 : passage.end_line])


MARKDOWN = """# Title

Intro text.

## First part

Some words.

```python
# not a heading
x = 1
```

### Deeper

More words.

Second
------

Last words.
"""


def test_markdown_has_heading_paths_and_exact_lines() -> None:
    document = markdown.parse(MARKDOWN.encode(), "a.md")
    passages = passages_of(document)
    assert document.title == "Title"
    assert_lines_are_those_of_the_file(passages, MARKDOWN)
    assert one(passages, "More words").heading == "Title > First part > Deeper"
    assert one(passages, "Last words").heading == "Title > Second"


def test_markdown_code_is_not_split_and_its_comments_are_no_headings() -> None:
    code = one(passages_of(markdown.parse(MARKDOWN.encode(), "a.md")), "x = 1")
    assert "# not a heading" in code.text
    assert code.heading == "Title > First part"


def test_code_within_a_list_stays_whole_and_its_lines_are_exact() -> None:
    source = "# Steps\n\n- first:\n\n  ```sh\n  # no heading\n\n  run\n  ```\n\n- second\n"
    passages = passages_of(markdown.parse(source.encode(), "a.md"))
    assert_lines_are_those_of_the_file(passages, source)
    code = one(passages, "run")
    assert "# no heading" in code.text
    assert code.heading == "Steps"


def test_a_markdown_heading_keeps_its_words_and_loses_its_markup() -> None:
    headings = {
        "# Use `snake_case` *here*": "Use snake_case here",
        "# noesium_stream": "noesium_stream",
        "# [The log](x.md) ##": "The log",
        "# ![badge](x.svg) Title": "Title",
        "Two\nlines\n===": "Two lines",
        "# A \\* B &amp; C": "A * B & C",
    }
    for source, heading in headings.items():
        assert markdown.parse(source.encode(), "a.md").title == heading


def test_markdown_that_is_too_long_for_its_parser_is_read_as_text() -> None:
    source = "# Title\n\nWords.\n\n" * (markdown.MAX_CHARACTERS // 16 + 1)
    document = markdown.parse(source.encode(), "a.md")
    assert document.note == "too long for Markdown, read as text"
    assert document.blocks[1].lines == ["Words."]


def test_a_markdown_header_of_settings_is_no_text() -> None:
    document = markdown.parse(b"---\ntitle: Named\ntags: x\n---\n\nWords.\n", "a.md")
    assert document.title == "Named"
    assert [(p.text, p.start_line) for p in passages_of(document)] == [("Words.", 6)]


RST = """=====
Title
=====

Intro.

.. image:: picture.png
   :alt: hidden

First
=====

It is done so::

    run --fast

Deeper
------

.. note:: Mind the gap.

Second
======

Words with :class:`Thing`.
"""


def test_rst_has_section_paths_and_exact_lines() -> None:
    document = rst.parse(RST.encode(), "a.rst")
    passages = passages_of(document)
    assert document.title == "Title"
    assert_lines_are_those_of_the_file(passages, RST)
    assert one(passages, "Mind the gap").heading == "Title > First > Deeper"
    assert one(passages, "run --fast").text.startswith("It is done so::")
    assert one(passages, "Thing").heading == "Title > Second"
    assert not [passage for passage in passages if "hidden" in passage.text]


def test_html_keeps_what_is_visible_with_its_headings_and_lines() -> None:
    source = (
        "<html><head><title>The title</title><style>p{}</style></head>\n<body><nav>menu</nav>\n"
        "<h1>Top</h1>\n<p>One &amp; two<br>three</p>\n<script>evil()</script>\n<h2>Sub</h2>\n"
        "<table><tr><th>light</th><th>meaning</th></tr>\n<tr><td>red</td><td>stop</td></tr></table>\n"
        "<pre>a\n  b</pre></body>"
    )
    document = html.parse(source.encode(), "a.html")
    passages = passages_of(document)
    text_ = "\n".join(passage.text for passage in passages)
    assert document.title == "The title"
    assert "One & two\nthree" in text_
    assert "red | stop" in text_
    assert "  b" in text_
    assert not [word for word in ("menu", "evil", "p{}") if word in text_]
    assert one(passages, "One & two").start_line == 4
    assert one(passages, "red").heading == "Top > Sub"


@pytest.mark.parametrize(
    "source", ["<p>never closed", "<!-- open", "</div></p>text", "<h1>x", "<a <b> c", "&#xZZ;"]
)
def test_broken_html_is_read_as_far_as_it_goes(source: str) -> None:
    html.parse(source.encode(), "a.html")


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
    assert_lines_are_those_of_the_file(passages, PYTHON)
    signature = one(passages, "def level")
    assert signature.heading == "Gauge > level"
    assert '"""The level at `when`."""' in signature.text
    assert "return 1.0" not in signature.text
    assert one(passages, "def helper").text.startswith("@decorated")


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


def test_long_paragraphs_are_cut_at_sentences_and_keep_their_lines() -> None:
    source = "\n".join(f"This is sentence number {n} of a long text." for n in range(100))
    passages = passages_of(text.parse(source.encode(), "a.txt"))
    assert_lines_are_those_of_the_file(passages, source)
    assert all(80 <= len(passage.text.split()) <= 160 for passage in passages[:-1])


def test_an_endless_line_is_cut_into_bounded_passages() -> None:
    for source in ("word. Next " * 20_000, "x" * 1_000_000):
        passages = passages_of(text.parse(source.encode(), "a.txt"))
        assert all(len(passage.text) <= MOST_CHARACTERS for passage in passages)
        assert all(passage.start_line == passage.end_line == 1 for passage in passages)


@given(st.text(alphabet="ab.#`-=\n |*:>", max_size=400))
def test_markdown_and_rst_never_lose_their_place(source: str) -> None:
    for parser in (markdown, rst, text):
        lines = source.split("\n")
        for passage in passages_of(parser.parse(source.encode(), "a")):
            assert passage.start_line is not None
            assert passage.end_line is not None
            cited = "\n".join(line.rstrip() for line in lines[passage.start_line - 1 : passage.end_line])
            assert passage.text == cited


def test_camel_case_names_are_found_by_their_words() -> None:
    assert identifier_words("An EventEnvelope and HTTPServer, plain Words") == "Event Envelope HTTP Server"
