"""AsciiDoc gives sections, terms with their texts, lists, tables and code."""

from __future__ import annotations

import pytest

from agents.documents.parsers import asciidoc, text
from agents.documents.passages import passages_of


def units(source: str) -> list[tuple[str, str, int, int]]:
    found = [u for p in passages_of(asciidoc.parse(source.encode(), "a.adoc")) for u in p.units]
    return [(unit.kind, unit.text, unit.first, unit.last) for unit in found]


def groups(source: str) -> dict[str, int]:
    found = [u for p in passages_of(asciidoc.parse(source.encode(), "a.adoc")) for u in p.units]
    return {unit.text: unit.group for unit in found}


@pytest.mark.parametrize(
    "source",
    [
        "git-foo(1)\n==========\n\nName\n----\nText.\n\nDeep *er*\n~~~~~~~\nMore.\n",
        "= git-foo(1)\n\n== Name\nText.\n\n=== Deep *er*\nMore.\n",
    ],
)
def test_titles_of_both_forms_are_headings(source: str) -> None:
    document = asciidoc.parse(source.encode(), "a.adoc")
    assert document.title == "git-foo(1)"
    assert [(p.heading, p.text) for p in passages_of(document)] == [
        ("git-foo(1) > Name", "Text."),
        ("git-foo(1) > Name > Deep er", "More."),
    ]


def test_terms_have_the_text_below_and_what_is_attached() -> None:
    source = "-a::\n--all::\n\tShow\n\tall.\n+\nMore.\n\n<path>:: A path.\n\nAfter it all.\n"
    assert units(source) == [
        ("term", "-a, --all", 1, 1),
        ("prose", "Show all.", 3, 4),
        ("prose", "More.", 6, 6),
        ("term", "<path>", 8, 8),
        ("prose", "A path.", 8, 8),
        ("prose", "After it all.", 10, 10),
    ]
    of = groups(source)
    assert of["-a, --all"] == of["Show all."] == of["More."]
    assert len({of["More."], of["A path."], of["After it all."]}) == 3


def test_a_term_keeps_code_attached_to_it_and_what_follows_is_another_text() -> None:
    of = groups("run::\n+\n----\n$ go\n----\n\nOther.\n\n== End\nx::\n")
    assert list(of) == ["run", "$ go", "Other.", "x"]
    assert of["Other."] != of["run"]


def test_lists_have_items_on_their_lines() -> None:
    source = "Steps:\n\n* one\n* two goes\n  on\n** deep\n\n. first\n. second\n\n1. third\n"
    assert units(source) == [
        ("prose", "Steps:", 1, 1),
        ("item", "one", 3, 3),
        ("item", "two goes on", 4, 5),
        ("item", "deep", 6, 6),
        ("item", "first", 8, 8),
        ("item", "second", 9, 9),
        ("item", "third", 11, 11),
    ]


def test_fences_hold_code_and_comments_hold_nothing() -> None:
    source = (
        "[source,sh]\n----\n# no title\n\n== none\n----\n\n....\nplain\n....\n\n"
        "////\nhidden\n////\n// hidden\n"
    )
    assert units(source) == [("code", "# no title\n\n== none", 3, 5), ("code", "plain", 9, 9)]


def test_a_fence_that_is_not_closed_reaches_to_the_end() -> None:
    assert units("Text.\n\n----\none\ntwo") == [("prose", "Text.", 1, 1), ("code", "one\ntwo", 4, 5)]


def test_blocks_around_text_leave_it_text() -> None:
    assert [unit[1] for unit in units("[NOTE]\n====\nInside.\n====\n\n--\nOpen.\n--\n\nTIP: Go.\n")] == [
        "Inside.",
        "Open.",
        "Tip: Go.",
    ]


def test_a_table_has_a_head_and_rows_on_their_lines() -> None:
    source = ".Lights\n|===\n|light |meaning\n\n|red\n|stop\nnow\n\n|green a|go\n|===\n"
    assert units(source) == [
        ("prose", "Lights", 1, 1),
        ("head", "light | meaning", 3, 3),
        ("row", "red | stop now", 5, 5),
        ("row", "green | go", 9, 9),
    ]


def test_a_table_has_as_many_columns_as_it_says() -> None:
    source = '[cols="1,2"]\n|===\n|a\n|b\n|c\n|d\n|===\n'
    assert [unit[1] for unit in units(source)] == ["a | b", "c | d"]


@pytest.mark.parametrize(
    ("marked", "shown"),
    [
        ("see linkgit:git-bar[1].", "see git-bar(1)."),
        ("http://x.y[the site] and link:a.html[a page]", "the site (http://x.y) and a page"),
        ("<<anchor,the part>> of <<other>>", "the part of other"),
        ("*bold* _it_ 'quoted' and `a *b* c`", "bold it quoted and `a *b* c`"),
        ("`-x` *over\ntwo lines*", "`-x` over two lines"),
        ("*`code` in bold*", "`code` in bold"),
        ("a{nbsp}b {plus} {asterisk}", "a b + *"),
        ("[[anchor]]Text (((index)))here", "Text here"),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"),
    ],
)
def test_inline_markup_is_gone(marked: str, shown: str) -> None:
    assert [unit[1] for unit in units(f"{marked}\n")] == [shown]


def test_lines_of_sentences_are_those_of_the_file() -> None:
    assert units(":attr: x\n\nOne *two\nthree*. Four\nfive.\n") == [
        ("prose", "One two three.", 3, 4),
        ("prose", "Four five.", 4, 5),
    ]


def test_a_text_with_the_marks_of_asciidoc_is_read_as_such() -> None:
    source = "git-foo(1)\n==========\n\nOPTIONS\n-------\n-a::\n\tAll.\n+\nSee linkgit:git-bar[1].\n"
    document = text.parse(source.encode(), "git-foo.txt")
    assert document.title == "git-foo(1)"
    assert [unit.text for unit in passages_of(document)[0].units] == ["-a", "All.", "See git-bar(1)."]
