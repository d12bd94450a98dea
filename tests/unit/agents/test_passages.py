"""Passages are bounded, keep what a reader needs with each piece, and lose no text."""

from __future__ import annotations

import contextlib
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.documents.blocks import BinaryError, Block, DamagedError, Document
from agents.documents.parsers import asciidoc, man, markdown, rst, text
from agents.documents.passages import MOST_CHARACTERS, Passage, identifier_words, passages_of

SENTENCE = "This is a sentence of as many words as ten."


def first_texts(passages: list[Passage]) -> set[str]:
    return {passage.units[0].text for passage in passages}


def test_long_paragraphs_are_cut_at_sentences_and_keep_their_lines() -> None:
    source = "\n".join(f"This is sentence number {n} of a long text." for n in range(100))
    passages = passages_of(text.parse(source.encode(), "a.txt"))
    units = [unit for passage in passages for unit in passage.units]
    assert [(u.text, u.first, u.last) for u in units] == [
        (line, number, number) for number, line in enumerate(source.split("\n"), 1)
    ]
    assert all(80 <= len(passage.text.split()) <= 160 for passage in passages[:-1])


def test_a_term_stands_in_each_piece_of_its_text() -> None:
    block = Block(["--term", *[SENTENCE] * 50], 1, 51, kind="term")
    passages = passages_of(Document("a", [block]))
    assert len(passages) > 2
    assert first_texts(passages) == {"--term"}
    assert {(passage.units[0].first, passage.units[0].last) for passage in passages} == {(1, 1)}


def test_the_head_of_a_table_stands_in_each_piece_of_it() -> None:
    block = Block(["light | meaning", *(f"light {n} | {SENTENCE}" for n in range(50))], 1, 51, kind="table")
    passages = passages_of(Document("a", [block]))
    assert len(passages) > 2
    assert first_texts(passages) == {"light | meaning"}
    assert {passage.units[0].kind for passage in passages} == {"head"}


def test_an_announcing_sentence_stands_in_each_piece_of_a_list() -> None:
    items = "\n".join(f"- {n}: {SENTENCE}" for n in range(60))
    for between in ("\n", "\n\n"):
        passages = passages_of(markdown.parse(f"The steps are:{between}{items}\n".encode(), "a.md"))
        assert len(passages) > 2
        assert first_texts(passages) == {"The steps are:"}


def test_an_announcing_sentence_stands_with_terms_that_are_blocks_of_their_own() -> None:
    terms = "".join(f".TP\n.B \\-{n}\n{SENTENCE} {SENTENCE}\n" for n in range(40))
    source = f".TH A 1\n.SH OPTIONS\nThe options are:\n{terms}.PP\n{SENTENCE * 20}\n"
    passages = passages_of(man.parse(source.encode(), "a.1"))
    listed = [passage for passage in passages if any(unit.kind == "term" for unit in passage.units)]
    assert len(listed) > 2
    assert first_texts(listed) == {"The options are:"}
    assert passages[-1].units[0].text != "The options are:"


def test_what_is_announced_ends_where_another_text_begins() -> None:
    source = "Steps:\n- one\n- two\n\n" + "\n".join([SENTENCE] * 60)
    passages = passages_of(text.parse(source.encode(), "a.txt"))
    assert [passage.units[0].text for passage in passages].count("Steps:") == 1


def test_paragraphs_under_one_term_have_it_once() -> None:
    source = ".TH A 1\n.SH X\n.TP\nterm\nOne.\n.IP\nTwo.\n"
    [passage] = passages_of(man.parse(source.encode(), "a.1"))
    assert [unit.text for unit in passage.units] == ["term", "One.", "Two."]


def test_long_code_is_cut_between_its_lines() -> None:
    lines = [f"value_{n} = compute({n}, of, the, rest)" for n in range(300)]
    passages = passages_of(Document("a", [Block(lines, 11, 310, kind="code")]))
    units = [unit for passage in passages for unit in passage.units]
    assert "\n".join(unit.text for unit in units).split("\n") == lines
    assert all(unit.text == "\n".join(lines[unit.first - 11 : unit.last - 10]) for unit in units)


def test_an_endless_line_is_cut_into_bounded_passages() -> None:
    for source in ("word. Next " * 20_000, "x" * 1_000_000):
        passages = passages_of(text.parse(source.encode(), "a.txt"))
        assert all(len(passage.text) <= MOST_CHARACTERS for passage in passages)
        assert all(passage.start_line == passage.end_line == 1 for passage in passages)
        assert "".join(p.text for p in passages).replace(" ", "") == source.replace(" ", "")


LINES = st.lists(st.sampled_from(["x" * 3_990, "y " * 1_000, "word", "z" * 390 + ":", "- i", "a | b | c"]))


@settings(deadline=None)
@given(LINES, st.sampled_from(["", "prose", "item", "term", "table", "code"]))
def test_no_passage_is_longer_than_the_most(lines: list[str], kind: str) -> None:
    lines = ["t" * 399, *lines]
    blocks = [Block(lines, 1, len(lines), kind=kind), Block(lines, 1, len(lines), kind=kind)]  # type: ignore[arg-type]
    for passage in passages_of(Document("a", blocks)):
        assert len(passage.text) <= MOST_CHARACTERS


HOSTILE_TEXT = """
# T|## U|===|---|+++|~~~|- i|  - j|* k|1. n|    code|> q|| a | b ||a::|b:: c|+|[NOTE]|.Title|:attr: v|>>> x
.. note::|.. option:: -x|.. function:: f()|::|text::|   deep|**b|`c|*d|_e|[f](|![g]|\\|<b|</b>|:role:`x|`y`_
.TP|.B h|.IP|.PP|.RS|.RE|.SH S|.IP "t" 4|.BR a b|.It Fl a|.Fl|'br|.sp|.TQ|\\fB|\\(|.Op|+---+|==  ==|$ x
""".strip()
HOSTILE = st.sampled_from([part for line in HOSTILE_TEXT.split("\n") for part in line.split("|")])


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text of marks of all kinds, and the words of the plain paragraphs among them."""
    lines: list[str] = []
    words: list[str] = []
    for _ in range(draw(st.integers(1, 8))):
        lines += draw(st.lists(st.one_of(HOSTILE, st.just("")), max_size=5))
        said = [
            f"{draw(st.sampled_from(['Alpha', 'beta', 'G4', 'straße']))}{len(words) + n}" for n in range(5)
        ]
        end = draw(st.sampled_from([".", "?", ":", ""]))
        lines += ["", f"{said[0]} {said[1]}, {said[2]}", f"{said[3]} {said[4]}{end}", ""]
        words += said
    return "\n".join(lines), words


@settings(deadline=None)
@given(documents())
def test_no_plain_paragraph_is_lost(document: tuple[str, list[str]]) -> None:
    source, words = document
    count = source.count("\n") + 4
    for parser in (text, markdown, rst, asciidoc, man):
        before = ".TH A 1\n.SH X\n" if parser is man else ""
        passages = passages_of(parser.parse(f"{before}{source}\n".encode(), "a.1"))
        found = set(re.findall(r"\w+", " ".join(f"{p.text} {p.heading}" for p in passages)))
        assert [word for word in words if word not in found] == []
        for unit in (unit for passage in passages for unit in passage.units):
            assert 1 <= unit.first <= unit.last <= count


@settings(deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(alphabet="ab.#`-=\n |*:>\\_[](){}<+'\"~TPSH\t", max_size=300).map(str.encode),
    )
)
def test_parsers_raise_nothing_else_than_that_a_file_is_damaged_or_binary(data: bytes) -> None:
    for parser in (text, markdown, rst, asciidoc, man):
        for before in (b"", b".TH A 1\n"):
            with contextlib.suppress(DamagedError, BinaryError):
                passages_of(parser.parse(before + data, "a"))


@settings(deadline=None)
@given(st.text(alphabet="ab.#`-=\n |*:>", max_size=400))
def test_units_never_lose_their_place(source: str) -> None:
    lines = source.split("\n")
    for parser in (markdown, rst, text, asciidoc):
        for passage in passages_of(parser.parse(source.encode(), "a")):
            for unit in passage.units:
                cited = "".join(lines[unit.first - 1 : unit.last])
                # several terms with one explanation are named together, on the line of the first
                if unit.kind != "term":
                    assert re.sub(r"\W", "", unit.text) in re.sub(r"\W", "", cited)


def test_camel_case_names_are_found_by_their_words() -> None:
    assert identifier_words("An EventEnvelope and HTTPServer, plain Words") == "Event Envelope HTTP Server"
