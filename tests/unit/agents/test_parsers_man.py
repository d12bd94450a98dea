"""Manual pages in roff give sections, terms, texts, code and tables."""

from __future__ import annotations

import gzip

import pytest

from agents.documents import decoding
from agents.documents.blocks import DamagedError, Document
from agents.documents.parsers import man
from agents.documents.passages import passages_of

HEAD = ".TH FOO 1 2020\n"


def units(source: str) -> list[tuple[str, str, int, int]]:
    document = man.parse((HEAD + source).encode(), "foo.1")
    found = [unit for passage in passages_of(document) for unit in passage.units]
    return [(unit.kind, unit.text, unit.first, unit.last) for unit in found]


def texts(source: str) -> list[str]:
    return [text for _, text, _, _ in units(source)]


def groups(source: str) -> dict[str, int]:
    document = man.parse((HEAD + source).encode(), "foo.1")
    return {unit.text: unit.group for passage in passages_of(document) for unit in passage.units}


def headings(document: Document) -> list[str]:
    return [passage.heading for passage in passages_of(document)]


def test_a_page_is_named_by_its_title_and_what_it_says_of_itself() -> None:
    document = man.parse(b".TH FOO 1\n.SH NAME\nfoo \\- do \\fBthings\\fR\n", "foo.1")
    assert document.title == "foo(1): do things"


def test_sections_and_their_parts_are_headings() -> None:
    source = '.TH A 1\n.SH NAME\na \\- b\n.SH "SEE ALSO"\nText.\n.SS Files\nMore.\n.SH\nBUGS FOUND\nNone.\n'
    assert headings(man.parse(source.encode(), "a.1")) == [
        "NAME",
        "See also",
        "See also > Files",
        "Bugs found",
    ]


def test_a_term_has_its_paragraphs() -> None:
    source = (
        '.SH OPTIONS\n.TP\n.BR \\-a ", " \\-\\-all\nShow\nall. Hide none.\n.IP\nMore on it.\n.PP\nOther.\n'
    )
    assert units(source) == [
        ("term", "-a, --all", 4, 4),
        ("prose", "Show all.", 5, 6),
        ("prose", "Hide none.", 6, 6),
        ("prose", "More on it.", 8, 8),
        ("prose", "Other.", 10, 10),
    ]
    of = groups(source)
    assert of["-a, --all"] == of["Show all."] == of["More on it."] != of["Other."]


def test_terms_that_share_a_text_are_one() -> None:
    assert units(".SH X\n.TP\n.B \\-b\n.TQ\n.B \\-\\-bee\nText.\n") == [
        ("term", "-b, --bee", 4, 4),
        ("prose", "Text.", 7, 7),
    ]


def test_an_indented_paragraph_with_a_mark_of_words_is_a_term() -> None:
    assert [unit[:2] for unit in units('.SH X\n.IP "\\fIname\\fR" 4\nText.\n.IP \\(bu 2\nPoint.\n')] == [
        ("term", "name"),
        ("prose", "Text."),
        ("prose", "Point."),
    ]


def test_what_is_indented_below_a_short_line_explains_it() -> None:
    source = ".SH X\n.PP\n\\-a\n.RS 4\nAll.\n.sp\nMore.\n.PP\n\\-b\n.RS 4\nSub.\n.RE\n.RE\n.PP\nLast.\n"
    of = groups(source)
    assert of["-a"] == of["All."] == of["More."]
    assert of["-b"] == of["Sub."]
    assert len({of["-a"], of["-b"], of["Last."]}) == 3


def test_a_term_without_a_text_is_not_lost() -> None:
    assert texts(".SH X\n.TP\nlone\n.SH Y\nText.\n.TP\nlast\n") == ["lone", "Text.", "last"]
    assert texts(".SH X\n.TP\nrun\n.EX\n$ go\n.EE\nText.\n") == ["run", "$ go", "Text."]


@pytest.mark.parametrize(
    ("roff", "shown"),
    [
        (r"\fBbold\fP \f[I]it\f[] \f(CWcode\fR", "bold it code"),
        (r"\s-1SMALL\s0 \s[+2]big\s[0]", "SMALL big"),
        (r"a\-b \(em c \[bu] d \e n", r"a-b — c • d \ n"),
        (r"\(aqq\(aq \*(Aqx\*(Aq \(lqy\(rq", "'q' 'x' “y”"),
        (r"wait\&. \|thin\^ \%hyphen\:ation", "wait. thin hyphenation"),
        (r"\[u00E9]t\['e] \N'65' \[char66]", "été A B"),
        (r"move\h'1n'd \v'2'up \m[red]red\m[]", "moved up red"),
        ('seen \\" not seen', "seen"),
        (r"one\~two\ three", "one two three"),
        (r"tail\c", "tail"),
    ],
)
def test_fonts_and_escapes_are_shown_as_text(roff: str, shown: str) -> None:
    assert texts(f".SH X\n{roff}\n") == [shown]


def test_alternating_fonts_join_their_arguments() -> None:
    assert texts('.SH X\n.BR ls (1),\n.IR "a b" c\n.B one two\n') == ["ls(1), a bc one two"]


def test_requests_and_definitions_of_macros_are_no_text() -> None:
    source = (
        ".de XX\nhidden \\$1\n..\n.if \\n[.g] \\{\\\n.  am YY\n.    ad l\n.  .\n.\\}\n.ad l\n.SH X\nSeen.\n"
    )
    assert texts(source) == ["Seen."]


def test_code_keeps_its_lines() -> None:
    source = ".SH X\nRun:\n.nf\n\n.B if x:\n    y \\e n\n\n    z\n.fi\n.EX\n$ go\n.EE\n"
    assert units(source) == [
        ("prose", "Run:", 3, 3),
        ("code", "if x:\n    y \\ n\n\n    z", 6, 9),
        ("code", "$ go", 12, 12),
    ]


def test_code_that_is_not_closed_ends_at_the_next_section_or_with_the_file() -> None:
    assert units(".SH X\n.nf\none\n.SH Y\nText.\n.nf\nlast") == [
        ("code", "one", 4, 4),
        ("prose", "Text.", 6, 6),
        ("code", "last", 8, 8),
    ]


def test_a_table_has_a_head_and_rows_on_their_lines() -> None:
    source = (
        ".SH X\n.TS\nallbox tab(;);\nlb l.\nName;Meaning\n_\na;one\nb;T{\nlong\n.B text\nT}\n.TE\nAfter.\n"
    )
    assert units(source) == [
        ("head", "Name | Meaning", 6, 6),
        ("row", "a | one", 8, 8),
        ("row", "b | long text", 9, 9),
        ("prose", "After.", 14, 14),
    ]


MDOC = """.Dd May 2, 2020
.Dt BAR 1
.Os
.Sh NAME
.Nm bar
.Nd do things
.Sh SYNOPSIS
.Nm
.Op Fl a Ar file
.Oo Fl x Oc
.Sh DESCRIPTION
The
.Nm
utility, see
.Xr ls 1 .
.Bl -tag -width x
.It Fl a , Fl -all
All of
.Pa /etc .
.It Ev HOME
.Dq Home .
.El
.Bd -literal
x = 1
.Ed
.Dl $ bar -a
"""


def test_a_page_of_mdoc_is_read() -> None:
    document = man.parse(MDOC.encode(), "bar.1")
    found = [(unit.kind, unit.text, unit.first, unit.last) for p in passages_of(document) for unit in p.units]
    assert document.title == "bar(1): do things"
    assert found == [
        ("prose", "bar - do things", 5, 6),
        ("prose", "bar [-a file] [-x]", 8, 10),
        ("prose", "The bar utility, see ls(1).", 12, 15),
        ("term", "-a, --all", 17, 17),
        ("prose", "All of /etc.", 18, 19),
        ("term", "HOME", 20, 20),
        ("prose", "“Home”.", 21, 21),
        ("code", "x = 1", 24, 24),
        ("code", "$ bar -a", 26, 26),
    ]


def test_a_compressed_page_is_read() -> None:
    document = man.parse(gzip.compress(b".TH A 1\n.SH X\nText.\n"), "a.1.gz")
    assert [passage.text for passage in passages_of(document)] == ["Text."]


def test_a_compressed_page_that_unpacks_to_too_much_is_refused() -> None:
    bomb = gzip.compress(b"\n" * (decoding.MOST_UNPACKED + 1))
    assert len(bomb) < 100_000
    with pytest.raises(DamagedError, match="unpacks to too much"):
        man.parse(bomb, "a.1.gz")


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b".TH A 1\n" * 99, mtime=0)[:20], b"\x1f\x8b\x08\x00" + b"\xff" * 40],
    ids=["empty", "no gzip", "cut off", "garbage"],
)
def test_a_damaged_compressed_page_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedError):
        man.parse(data, "a.1.gz")


@pytest.mark.parametrize("data", [b"", b"int main(void);\n", b"version 1.2\n\n.not a macro\n"])
def test_a_file_that_is_no_page_says_so(data: bytes) -> None:
    with pytest.raises(DamagedError, match="no manual page"):
        man.parse(data, "libfoo.so.1")
