"""reStructuredText gives sections, terms, notes, tables and code; roles and directives are no text."""

from __future__ import annotations

import pytest

from agents.documents.parsers import rst
from agents.documents.passages import passages_of


def units(source: str) -> list[tuple[str, str, int, int]]:
    found = [u for p in passages_of(rst.parse(source.encode(), "a.rst")) for u in p.units]
    return [(unit.kind, unit.text, unit.first, unit.last) for unit in found]


def kinds(source: str) -> list[tuple[str, str]]:
    return [unit[:2] for unit in units(source)]


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


def test_sections_are_headings_and_units_have_their_lines() -> None:
    document = rst.parse(RST.encode(), "a.rst")
    found = [(p.heading, u.text, u.first, u.last) for p in passages_of(document) for u in p.units]
    assert document.title == "Title"
    assert found == [
        ("Title", "Intro.", 5, 5),
        ("Title > First", "It is done so:", 13, 13),
        ("Title > First", "run --fast", 15, 15),
        ("Title > First > Deeper", "Note: Mind the gap.", 20, 20),
        ("Title > Second", "Words with Thing.", 25, 25),
    ]


def test_definitions_are_terms_also_without_blank_lines_between_them() -> None:
    source = "one\n    First text.\n    Second\n    text.\ntwo *x*\n    Third.\n\nthree\n  Fourth.\n"
    assert units(source) == [
        ("term", "one", 1, 1),
        ("prose", "First text.", 2, 2),
        ("prose", "Second text.", 3, 4),
        ("term", "two x", 5, 5),
        ("prose", "Third.", 6, 6),
        ("term", "three", 8, 8),
        ("prose", "Fourth.", 9, 9),
    ]


def test_what_a_directive_describes_is_a_term() -> None:
    source = (
        ".. option:: -x\n            --long\n\n   Do so::\n\n      code here\n\n   More.\n\n"
        ".. function:: f(a)\n   :noindex:\n\n.. class:: C\n\n   .. method:: m()\n\n      Text of it.\n"
    )
    assert units(source) == [
        ("term", "-x, --long", 1, 1),
        ("prose", "Do so:", 4, 4),
        ("code", "code here", 6, 6),
        ("prose", "More.", 8, 8),
        ("term", "f(a)", 10, 10),
        ("term", "C", 13, 13),
        ("term", "m()", 15, 15),
        ("prose", "Text of it.", 17, 17),
    ]


def test_fields_below_a_description_are_kept() -> None:
    source = ".. function:: f(a)\n\n   :param a: The thing.\n   :returns: Nothing.\n"
    assert kinds(source) == [("term", "f(a)"), ("item", "a: The thing."), ("item", "returns: Nothing.")]


def test_literal_blocks_and_code_directives_stay_whole() -> None:
    source = (
        "Run::\n\n  a\n\n    b\n\nText.\n\n.. code-block:: sh\n   :linenos:\n\n   c\n\n   d\n\n::\n\n   e\n"
    )
    assert units(source) == [
        ("prose", "Run:", 1, 1),
        ("code", "a\n\n  b", 3, 5),
        ("prose", "Text.", 7, 7),
        ("code", "c\n\nd", 12, 14),
        ("code", "e", 18, 18),
    ]


def test_code_is_announced_by_an_item_too() -> None:
    assert kinds("- one\n  goes on::\n\n    code\n\n- two\n") == [
        ("item", "- one goes on:"),
        ("code", "code"),
        ("item", "- two"),
    ]


def test_a_session_of_python_is_code() -> None:
    assert units(">>> 1 + 1\n2\n") == [("code", ">>> 1 + 1\n2", 1, 2)]


@pytest.mark.parametrize(
    "note", [".. note:: Mind it. Now.", ".. note::\n   Mind it. Now.", ".. note::\n\n   Mind it. Now."]
)
def test_a_note_says_that_it_is_one_in_each_form(note: str) -> None:
    assert kinds(f"{note}\n\nText.\n") == [("prose", "Note: Mind it."), ("prose", "Now."), ("prose", "Text.")]


def test_a_note_may_hold_more_than_a_paragraph() -> None:
    source = ".. warning::\n\n   One.\n\n   Two::\n\n      code\n\n   - three\n"
    assert kinds(source) == [
        ("prose", "Warning: One."),
        ("prose", "Two:"),
        ("code", "code"),
        ("item", "- three"),
    ]


def test_versions_are_told_in_words() -> None:
    assert kinds(".. versionadded:: 3.2\n\n.. deprecated:: 4\n   Use x.\n") == [
        ("prose", "New in version 3.2"),
        ("prose", "Deprecated since version 4 Use x."),
    ]


def test_comments_targets_and_pictures_are_no_text() -> None:
    source = (
        ".. a comment\n   goes on\n\n..\n   another\n\n.. _target:\n\n.. |x| replace:: y\n\n"
        ".. toctree::\n   :maxdepth: 2\n\n   page\n\n.. index:: z\n\nText.\n"
    )
    assert units(source) == [("prose", "Text.", 18, 18)]


def test_text_in_other_directives_is_kept() -> None:
    source = (
        ".. topic:: A title\n\n   Text.\n\n.. [1] A note.\n\n.. rubric:: End\n\n.. unheard-of::\n\n   Kept.\n"
    )
    assert [unit[1] for unit in units(source)] == ["A title", "Text.", "[1] A note.", "End", "Kept."]


def test_tables_have_heads_and_rows() -> None:
    grid = "+---+---+\n| a | b |\n+===+===+\n| c | d |\n+---+---+\n"
    simple = "==  ===\nA1  B2\n==  ===\nc   d\n    e\n==  ===\n"
    assert units(grid) == [("head", "a | b", 2, 2), ("row", "c | d", 4, 4)]
    assert units(simple) == [("head", "A1 | B2", 2, 2), ("row", "c | d e", 4, 4)]


@pytest.mark.parametrize(
    ("marked", "shown"),
    [
        (":class:`Thing` and :py:meth:`~a.b`", "Thing and a.b"),
        (":ref:`the part <target>` of `a page <http://x.y>`_", "the part of a page"),
        (":option:`!-x` ``code *x*`` **bold** *it*", "-x `code *x*` bold it"),
        ("**bold\nover lines** now", "bold over lines now"),
        ("name_ and `more words`__ and [1]_ and [#note]_", "name and more words and [1] and [#note]"),
        (r"\*args and \**more and x\ s", "*args and **more and xs"),
        ("|version| of snake_case and 2*3*4", "version of snake_case and 2*3*4"),
        (":samp:`a<b` :kbd:`Ctrl+C`", "a<b Ctrl+C"),
    ],
)
def test_inline_markup_is_gone(marked: str, shown: str) -> None:
    assert " ".join(unit[1] for unit in units(f"Text {marked} end.\n")) == f"Text {shown} end."
