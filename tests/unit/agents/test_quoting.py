"""Which words of a passage are quoted, and which lines are cited for them."""

from __future__ import annotations

from typing import Any

from agents.researcher.answering import answer_from, place_of
from agents.researcher.planning import plan
from agents.researcher.quoting import CODE_LINES, QUOTE_WORDS, best_unit, quote_of, quoted_units
from agents.researcher.weighing import weigh
from tests.support.found import passage, unit

QUESTION = "How does the lease of a worker end?"


def cited(*units: Any, **more: Any) -> dict[str, Any]:
    """The only citation of an answer from one passage."""
    made = plan(QUESTION)
    [citation] = answer_from(made, weigh(made["queries"], [[passage(*units, **more)]]), {})["citations"]
    assert isinstance(citation, dict)
    return citation


def words(count: int, word: str = "word") -> str:
    return " ".join([word] * count)


def test_the_unit_that_is_closest_and_covers_most_is_the_best() -> None:
    found = passage(
        unit("far", closeness=0.1, coverage=0.1),
        unit("near", closeness=0.7, coverage=1.0),
        unit("as near", closeness=0.7, coverage=1.0),
    )
    assert best_unit(found) == 1


def test_terms_and_heads_are_never_the_best_unit() -> None:
    found = passage(
        unit("lease", kind="term", closeness=1, coverage=1),
        unit("default", kind="head", closeness=1, coverage=1),
        unit("It lasts.", closeness=-0.2),
    )
    assert best_unit(found) == 2


def test_code_is_the_best_unit_only_if_it_is_clearly_nearer() -> None:
    code, prose = unit("x = 1", kind="code", closeness=0.6), unit("X is one.", closeness=0.5)
    assert best_unit(passage(code, prose)) == 1
    assert best_unit(passage({**code, "closeness": 0.7}, prose)) == 0


def test_a_term_comes_with_its_explanation() -> None:
    quoted = cited(
        unit("--lease", 4, "term", 1),
        unit(words(40, "early"), 5, group=1),
        unit(words(40, "late"), 6, group=1, closeness=1),
    )
    assert quoted["quote"] == f"--lease\n{words(40, 'late')}"
    assert (quoted["start_line"], quoted["end_line"]) == (6, 6), "the term may stand far above"


def test_a_row_comes_with_the_head_of_its_table() -> None:
    quoted = cited(
        unit("setting | default", 1, "head", 1),
        unit(words(78, "colour"), 3, "row", 1),
        unit("lease | 30 s", 4, "row", 1, closeness=1),
    )
    assert quoted["quote"] == "setting | default\nlease | 30 s"
    assert (quoted["start_line"], quoted["end_line"]) == (4, 4)


def test_the_head_of_another_table_is_no_part_of_a_row() -> None:
    found = passage(
        unit("setting | default", 1, "head", 1),
        unit(words(80), 2, "row", 1),
        unit("lease | 30 s", 9, "row", 2, closeness=1),
    )
    assert quote_of(quoted_units(found)) == "lease | 30 s"


def test_an_item_comes_with_the_sentence_that_announces_its_list() -> None:
    quoted = cited(
        unit("Renew it like this:", 2),
        unit(words(76), 4, "item", 1),
        unit("- knock", 5, "item", 2, closeness=1),
        unit("- wait", 6, "item", 3),
    )
    assert quoted["quote"] == "Renew it like this:\n- knock\n- wait"
    assert (quoted["start_line"], quoted["end_line"]) == (2, 6)


def test_an_announcing_sentence_far_above_is_quoted_but_not_in_the_lines() -> None:
    quoted = cited(
        unit("Renew it like this:", 2),
        unit("- knock", 50, "item", 2, closeness=1),
        unit("- wait", 51, "item", 3),
    )
    assert quoted["quote"] == "Renew it like this:\n- knock\n- wait"
    assert (quoted["start_line"], quoted["end_line"]) == (50, 51)


def test_a_sentence_before_a_list_that_announces_nothing_is_not_needed() -> None:
    found = passage(
        unit("A sentence.", 2), unit(words(79), 4, "item", 1), unit("knock", 5, "item", 2, closeness=1)
    )
    assert quote_of(quoted_units(found)) == f"- {words(79)}\n- knock"


def test_what_follows_comes_before_what_precedes() -> None:
    best = unit("It ends.", 2, group=1, closeness=1)
    before, after = unit(words(50, "before"), 1), unit(words(50, "after"), 3, group=2)
    assert [one["first"] for one in quoted_units(passage(before, best, after))] == [2, 3]
    assert [one["first"] for one in quoted_units(passage(before, best))] == [1, 2]


def test_a_quote_has_no_gap_where_something_does_not_fit() -> None:
    found = passage(unit("It ends.", 1, closeness=1), unit(words(80), 2), unit("Short.", 3))
    assert [one["first"] for one in quoted_units(found)] == [1]


def test_a_quote_has_80_words_at_most_unless_one_unit_has_more() -> None:
    many = [unit(words(9), line, closeness=line / 100) for line in range(30)]
    quoted = quoted_units(passage(*many))
    assert sum(len(one["text"].split()) for one in quoted) == 72 <= QUOTE_WORDS
    assert quoted_units(passage(unit(words(100)))) == [unit(words(100))]


def test_long_code_is_cut_and_says_so() -> None:
    code = "\n".join(f"line_{number}" for number in range(CODE_LINES + 3))
    quote = quote_of([unit(code, 1, "code")])
    assert quote.split("\n")[-2:] == [f"line_{CODE_LINES - 1}", "…"]
    assert "…" not in quote_of([unit("\n".join(code.split("\n")[:CODE_LINES]), 1, "code")])


def test_code_beside_a_sentence_is_quoted_only_if_it_is_announced() -> None:
    code = unit("knock --twice", 3, "code", 2)
    plain, announcing = unit("It ends.", 1, closeness=1), unit("End it so:", 1, closeness=1)
    assert quote_of(quoted_units(passage(plain, code))) == "It ends."
    assert quote_of(quoted_units(passage(announcing, code))) == "End it so:\nknock --twice"
    assert quote_of(quoted_units(passage(code, announcing))) == "End it so:"


def test_sentences_of_a_paragraph_flow_and_all_else_has_lines_of_its_own() -> None:
    units = [
        unit("One.", 1, group=1),
        unit("Two.", 2, group=1),
        unit("Three.", 4, group=2),
        unit("an item", 6, "item", 3),
        unit("that goes on", 7, "item", 3),
        unit("- marked", 8, "item", 4),
        unit("3. numbered", 9, "item", 5),
    ]
    assert quote_of(units).split("\n") == [
        "One. Two.",
        "Three.",
        "- an item that goes on",
        "- marked",
        "3. numbered",
    ]


def test_a_quote_is_shown_with_a_mark_on_each_line_and_its_number() -> None:
    made = plan(QUESTION)
    found = passage(unit("End it so:", closeness=1, coverage=1), unit("a\n\nb", 2, "code", 1))
    result = answer_from(made, weigh(made["queries"], [[found]]), {})
    assert result["answer"] == "> End it so:\n> a\n>\n> b [1]"


def test_a_place_is_a_line_lines_or_a_page() -> None:
    here = {"path": "a.md", "start_line": 3, "end_line": 5, "page": None}
    assert place_of(here) == "a.md:3-5"
    assert place_of({**here, "end_line": 3}) == "a.md:3"
    assert place_of({"path": "a.pdf", "start_line": None, "end_line": None, "page": 7}) == "a.pdf p. 7"
    assert place_of({"path": "a.docx", "start_line": None, "end_line": None, "page": None}) == "a.docx"


def test_a_page_is_cited_as_a_page() -> None:
    nowhere = unit("It ends.", 0)
    quoted = cited(nowhere, path="a.pdf", page=7, start_line=None, end_line=None)
    assert (quoted["page"], quoted["start_line"], quoted["end_line"]) == (7, None, None)


def test_a_file_without_lines_is_cited_without_lines() -> None:
    quoted = cited(unit("It ends.", 0), path="a.docx", start_line=None, end_line=None)
    assert (quoted["page"], quoted["start_line"], quoted["end_line"]) == (None, None, None)
