"""HTML gives what a reader sees, with its headings and lines, and leaves navigation out."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.documents.parsers import html
from agents.documents.passages import passages_of


def units(source: str) -> list[tuple[str, str, int, int]]:
    found = [u for p in passages_of(html.parse(source.encode(), "a.html")) for u in p.units]
    return [(unit.kind, unit.text, unit.first, unit.last) for unit in found]


def kinds(source: str) -> list[tuple[str, str]]:
    return [unit[:2] for unit in units(source)]


def texts(source: str) -> list[str]:
    return [unit[1] for unit in units(source)]


def groups(source: str) -> dict[str, int]:
    found = [u for p in passages_of(html.parse(source.encode(), "a.html")) for u in p.units]
    return {unit.text: unit.group for unit in found}


def test_what_is_visible_has_its_headings_and_lines() -> None:
    source = (
        "<html><head><title>The title</title><style>p{}</style></head>\n<body><nav>menu</nav>\n"
        "<h1>Top<a class='headerlink'>¶</a></h1>\n<p>One &amp; two<br>three.\nFour\nfive.</p>\n"
        "<script>evil()</script>\n<h2>Sub</h2>\n<p>Last.</p></body>"
    )
    document = html.parse(source.encode(), "a.html")
    assert document.title == "The title"
    assert [(p.heading, p.start_line, p.end_line) for p in passages_of(document)] == [
        ("Top", 4, 6),
        ("Top > Sub", 9, 9),
    ]
    assert units(source) == [
        ("prose", "One & two three.", 4, 4),
        ("prose", "Four five.", 5, 6),
        ("prose", "Last.", 9, 9),
    ]


def test_lines_are_counted_as_editors_do() -> None:
    assert units("<p>a</p>\r\n<p>b</p>\r<p>c</p>")[1:] == [("prose", "b", 2, 2), ("prose", "c", 3, 3)]


def test_terms_have_their_definitions() -> None:
    source = (
        "<dl><dt>-a</dt><dt>--all</dt>\n<dd><p>All.</p>\n<p>More.</p></dd>\n"
        "<dt>-b<dd>Bee.<dl><dt>sub</dt><dd>Part.</dd></dl>\n<dt>lone</dl><p>After.</p>"
    )
    assert units(source) == [
        ("term", "-a, --all", 1, 1),
        ("prose", "All.", 2, 2),
        ("prose", "More.", 3, 3),
        ("term", "-b", 4, 4),
        ("prose", "Bee.", 4, 4),
        ("term", "sub", 4, 4),
        ("prose", "Part.", 4, 4),
        ("term", "lone", 5, 5),
        ("prose", "After.", 5, 5),
    ]
    of = groups(source)
    assert of["-a, --all"] == of["All."] == of["More."]
    assert len({of[text] for text in ("All.", "Bee.", "Part.", "lone", "After.")}) == 5


def test_a_table_with_a_head_has_it_and_one_without_has_none() -> None:
    row = "<tr>\n<td>red</td><td><p>stop</p></td></tr>"
    head = "<tr><th>light</th><th>meaning</th></tr>"
    assert units(f"<table>{head}{row}</table>") == [
        ("head", "light | meaning", 1, 1),
        ("row", "red | stop", 2, 2),
    ]
    assert kinds(f"<table>{row}{row}</table>") == [("row", "red | stop")] * 2


def test_the_table_of_a_layout_is_text_in_its_order() -> None:
    wide = "Word " * 60 + "end."
    source = f"<table><tr><td>Name</td><td>{wide}<p>Next.</td></tr><tr><td>Last</td></tr></table>"
    assert kinds(source) == [("prose", "Name"), ("prose", wide), ("prose", "Next."), ("prose", "Last")]


def test_tables_within_tables_lose_nothing() -> None:
    source = "<table><tr><td>a<table><tr><th>b<th>c<tr><td>d<td>e</table>f</td><td>g</table>"
    assert sorted(" ".join(texts(source)).replace("|", " ").split()) == list("abcdefg")


@pytest.mark.parametrize(
    "side",
    [
        "<nav>side</nav>",
        "<footer>side</footer>",
        "<div class='sphinxsidebar'><div>side</div></div>",
        "<ul class='breadcrumbs wide'><li>side</ul>",
        "<div role='navigation'>side</div>",
        "<p class='toc'>side",
        "<div id='site-menu'>side</div>",
        "<button>side</button>",
        "<template>side</template>",
        "<nav>side",
    ],
)
def test_navigation_is_left_out(side: str) -> None:
    assert texts(f"{side}<main><h1>Top</h1><p>Seen.</p></main>") == ["Seen."]


@pytest.mark.parametrize(
    "around",
    [
        "<section id='search'>{}</section>",
        "<div class='section' id='menu'>{}</div>",
        "<div class='wy-nav-content'>{}</div>",
        "<div class='has-toc-left'>{}</div>",
        "<form action='x'>{}</form>",
    ],
)
def test_text_whose_part_is_only_named_like_navigation_is_kept(around: str) -> None:
    assert texts(around.format("<p>Seen.</p>")) == ["Seen."]


def test_pre_keeps_its_lines_and_indentation() -> None:
    source = "<p>a</p><pre>\n\n  <b>if</b> x:\n      y\n\n  z\n</pre>"
    assert units(source)[1] == ("code", "if x:\n    y\n\nz", 3, 6)


def test_nested_lists_have_their_items() -> None:
    source = "<ul><li>one\n<ul><li>two</li></ul></li>\n<li><p>three</p></li><li>four</ul>"
    assert units(source) == [
        ("item", "one", 1, 1),
        ("item", "two", 2, 2),
        ("item", "three", 3, 3),
        ("item", "four", 3, 3),
    ]


@pytest.mark.parametrize(
    "source",
    [
        "<p>seen",
        "</div></p>seen",
        "<h1>top<p>seen",
        "<h1>top</h2>seen",
        "<title>top<p>seen",
        "<a <b> seen",
        "&#xZZ; seen",
        "<table><td>seen",
        "<td>seen</td></tr>",
        "<dl><dt>seen",
        "<dd>seen</dd>",
        "<li><pre>seen",
        "<!-- <p>seen",
    ],
)
def test_broken_markup_loses_no_text(source: str) -> None:
    assert "seen" in " ".join(texts(source))


@pytest.mark.parametrize(
    "source",
    ["", "<!-- open", "<h1>x", "<", "<p", "<![CDATA[", "<![<![", "<![if x]>a<![endif]>", "<?x", "</", "<!a"],
)
def test_markup_that_breaks_off_is_no_error(source: str) -> None:
    units(source)


@settings(deadline=None)
@given(st.text(alphabet="<>/!?[]-&#;=\"' \nabptdhl1", max_size=200))
def test_hostile_markup_is_no_error(source: str) -> None:
    units(source)


@pytest.mark.parametrize(
    "part", ["<td>a<p> <p> ", "<table><tr><td>a", "<dt>a", "<div class=toc>", "<pre>a\n", "<!--"]
)
def test_endless_markup_is_read_in_bearable_time(part: str) -> None:
    passages_of(html.parse((part * (100_000 // len(part))).encode(), "a.html"))


@pytest.mark.parametrize("part", ["<a b='", '<a b="', "<a ", "<a b=", "<a<", "<a b='>' "])
def test_the_end_of_tags_that_nothing_closes_is_looked_for_a_few_times(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []
    search = HTMLParser.check_for_whole_start_tag

    def count(parser: HTMLParser, at: int) -> int:
        end = search(parser, at)
        searched.append((end if end >= 0 else len(parser.rawdata)) - at)
        return end

    monkeypatch.setattr(HTMLParser, "check_for_whole_start_tag", count)
    text = "<p>begin</p>" + part * (50_000 // len(part))
    assert "begin" in texts(text)
    assert sum(searched) <= (html._MOST_UNCLOSED + 1) * len(text)


def test_the_pages_behind_a_few_tags_that_nothing_closes_are_read_as_ever() -> None:
    source = "<a b=x'y>one</a><h1>Head</h1><p>two <b>three</b> <i"
    assert units(source) == [("prose", "one", 1, 1), ("prose", "two three <i", 1, 1)]


@settings(deadline=None)
@given(st.text(alphabet="<>/!?&lgt;=\"' \nabp", max_size=100))
def test_without_tags_that_nothing_closes_the_text_is_the_same(source: str) -> None:
    assert read(html._without_open_tags(source)) == read(source)


def read(text: str) -> list[tuple[list[str], int]]:
    reader = html._Reader()
    reader.feed(text)
    reader.close()
    reader.finish()
    return [(block.lines, block.start) for block in reader.blocks]
