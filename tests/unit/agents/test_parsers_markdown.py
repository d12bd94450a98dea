"""Markdown gives headings, items, tables and code as plain text, names in backticks."""

from __future__ import annotations

import pytest

from agents.documents.parsers import markdown
from agents.documents.passages import passages_of


def units(source: str) -> list[tuple[str, str, int, int]]:
    found = [u for p in passages_of(markdown.parse(source.encode(), "a.md")) for u in p.units]
    return [(unit.kind, unit.text, unit.first, unit.last) for unit in found]


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


def test_headings_are_paths_and_units_have_their_lines() -> None:
    document = markdown.parse(MARKDOWN.encode(), "a.md")
    found = [(p.heading, u.kind, u.text, u.first, u.last) for p in passages_of(document) for u in p.units]
    assert document.title == "Title"
    assert found == [
        ("Title", "prose", "Intro text.", 3, 3),
        ("Title > First part", "prose", "Some words.", 7, 7),
        ("Title > First part", "code", "# not a heading\nx = 1", 10, 11),
        ("Title > First part > Deeper", "prose", "More words.", 16, 16),
        ("Title > Second", "prose", "Last words.", 21, 21),
    ]


def test_code_within_a_list_stays_whole_and_its_lines_are_exact() -> None:
    source = "# Steps\n\n- first:\n\n  ```sh\n  # no heading\n\n  run\n  ```\n\n- second\n"
    assert units(source) == [
        ("item", "- first:", 3, 3),
        ("code", "# no heading\n\nrun", 6, 8),
        ("item", "- second", 11, 11),
    ]


def test_fences_in_quotes_and_items_are_no_code_themselves() -> None:
    source = "> ```\n> one\n> ```\n\n- ~~~\n  two\n  ~~~\n\n```` md\n```\nthree\n```\n````\n\n    four\n"
    assert [(kind, text.strip()) for kind, text, _, _ in units(source)] == [
        ("code", "one"),
        ("code", "two"),
        ("code", "```\nthree\n```"),
        ("code", "four"),
    ]


def test_a_fence_that_is_not_closed_keeps_its_last_line() -> None:
    assert units("```\none\ntwo") == [("code", "one\ntwo", 2, 3)]


def test_further_paragraphs_of_an_item_are_text() -> None:
    assert [unit[:2] for unit in units("1.  One.\n\n    More.\n")] == [
        ("item", "1. One."),
        ("prose", "More."),
    ]


def test_a_code_span_at_the_start_of_a_line_opens_no_fence() -> None:
    assert units("```run``` is used.\nText.\n") == [
        ("prose", "`run` is used.", 1, 1),
        ("prose", "Text.", 2, 2),
    ]


def test_a_heading_keeps_its_words_and_loses_its_markup() -> None:
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


def test_what_is_too_long_for_the_parser_is_read_as_text() -> None:
    source = "# Title\n\nWords.\n\n" * (markdown.MAX_CHARACTERS // 16 + 1)
    document = markdown.parse(source.encode(), "a.md")
    assert document.note == "too long for Markdown, read as text"
    assert document.blocks[1].lines == ["Words."]


def test_a_header_of_settings_is_no_text() -> None:
    document = markdown.parse(b"---\ntitle: Named\ntags: x\n---\n\nWords.\n", "a.md")
    assert document.title == "Named"
    assert [(p.text, p.start_line) for p in passages_of(document)] == [("Words.", 6)]


def test_text_between_two_rules_is_no_header_of_settings() -> None:
    assert [unit[1] for unit in units("---\n\nSome words.\n\n---\n\nMore.\n")] == ["Some words.", "More."]


def test_a_table_has_a_head_and_rows() -> None:
    source = "| light | `a` |\n|---|:-:|\n| **red** | stop \\| wait |\n| | go |\n"
    assert units(source) == [
        ("head", "light | `a`", 1, 1),
        ("row", "red | stop | wait", 3, 3),
        ("row", " | go", 4, 4),
    ]


@pytest.mark.parametrize(
    ("marked", "shown"),
    [
        ("[text](url) and [text][id] and [a](x_(y).md 'title')", "text and text and a"),
        ("[`name`](x.md) and **`other`**", "`name` and `other`"),
        ("[![badge](a.svg)](b) <https://x.y/z> ![p][q]", "https://x.y/z"),
        ("*it* _it_ **bold** __bold__ ***both*** ~~gone~~", "it it bold bold both gone"),
        ("*snake_case* and snake_case_name and 2 * 3 * 4", "snake_case and snake_case_name and 2 * 3 * 4"),
        ("`a *b* \\c` and ``x `y` z``", "`a *b* \\c` and `x `y` z`"),
        (r"\*not\* \_it\_ \`code\` \[x\]", "*not* _it_ `code` [x]"),
        ("a<br/>b <b>c</b> <!-- hidden --><file> &lt;d&gt; &#10; e", "a b c <file> <d> e"),
        ("see[^1] now", "see now"),
        ("tail\\", "tail"),
    ],
)
def test_inline_markup_is_gone(marked: str, shown: str) -> None:
    assert [text for _, text, _, _ in units(f"{marked}\n")] == [shown]


def test_markup_over_sentences_and_lines_is_gone_and_lines_are_exact() -> None:
    source = "Text **One. Two\nthree.** Four\n[five\nsix](x.md). A `b. C` d.\n"
    assert units(source) == [
        ("prose", "Text One.", 1, 1),
        ("prose", "Two three.", 1, 2),
        ("prose", "Four five six.", 2, 4),
        ("prose", "A `b. C` d.", 4, 4),
    ]


def test_boxes_to_tick_and_marks_of_quotes_are_gone() -> None:
    assert [unit[:2] for unit in units("- [x] done\n- [ ] open\n\n> Quoted\n> text.\n")] == [
        ("item", "- done"),
        ("item", "- open"),
        ("prose", "Quoted text."),
    ]
