from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.permission import (
    MAX_PERMISSION,
    check_permission,
    covering,
    covers,
    intersection,
    lesser_mode,
    permission_in,
    uncovered,
)

_part = st.one_of(st.sampled_from(["**", "*", "?", "a", "b", "a*", "*b", "a?", "*a*", "ab"]))
_paths = st.lists(_part, min_size=1, max_size=4).map("/".join)
_hosts = st.sampled_from(
    ["*", "a.com", "*.com", "*.a.com", "b.a.com", "*.b.a.com", "10.0.0.1", "[::1]", "A.com", "a.com."]
)
_ports = st.sampled_from(["", ":80", ":443"])
_texts = st.text(alphabet="ab*;", min_size=1, max_size=6)
permissions = st.one_of(
    st.sampled_from(["fs:read", "fs:write", "net:outbound", "shell:execute", "sql:read"]),
    st.builds("fs:{}:{}".format, st.sampled_from(["read", "write"]), _paths),
    st.builds("net:outbound:{}{}".format, _hosts, _ports),
    st.builds("shell:execute:{}".format, _texts),
    st.builds("sql:read:{}".format, _texts),
)


@given(permissions)
def test_a_permission_covers_itself(one):
    assert covers(one, one)


@given(permissions, permissions, permissions)
def test_what_covers_a_covering_permission_covers_what_that_one_covers(first, second, third):
    if covers(first, second) and covers(second, third):
        assert covers(first, third)


@given(_paths, _paths, _paths)
def test_coverage_of_paths_is_transitive(first, second, third):
    first, second, third = (f"fs:read:{one}" for one in (first, second, third))
    if covers(first, second) and covers(second, third):
        assert covers(first, third)


@given(_texts, _texts, _texts, st.sampled_from(["shell:execute", "sql:read"]))
def test_coverage_of_texts_is_transitive(first, second, third, kind):
    first, second, third = (f"{kind}:{one}" for one in (first, second, third))
    if covers(first, second) and covers(second, third):
        assert covers(first, third)


@given(st.lists(permissions, max_size=5), st.lists(permissions, max_size=5), permissions)
def test_narrowing_never_widens(grants, others, need):
    both = intersection(grants, others)
    if covering(both, need) is not None:
        assert covering(grants, need) is not None
        assert covering(others, need) is not None


@given(st.lists(permissions, max_size=5))
def test_what_is_narrowed_to_itself_is_the_same(grants):
    assert uncovered(intersection(grants, grants), grants) == []


@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_is_judged_without_an_error(grant, need):
    assert covers(grant, need) in (True, False)
    assert covers("fs:write:**", f"fs:write:{need}") in (True, False)


@pytest.mark.parametrize(
    ("grant", "need", "expected"),
    [
        ("fs:read", "fs:read:a/b", True),
        ("fs:read", "fs:read", True),
        ("fs:read:a", "fs:read", False),
        ("fs:read:**", "fs:read", True),
        ("fs:read", "fs:write", False),
        ("fs:write:reports/**", "fs:write:reports/2026/may.md", True),
        ("fs:write:reports/**", "fs:write:./reports//may.md", True),
        ("fs:write:reports/**", "fs:write:reports", True),
        ("fs:write:reports/**", "fs:write:reports2/may.md", False),
        ("fs:write:reports/**", "fs:write:reports/**", True),
        ("fs:write:reports/*", "fs:write:reports/**", False),
        ("fs:write:reports/*", "fs:write:reports/a/b", False),
        ("fs:write:*.md", "fs:write:a.md", True),
        ("fs:write:*.md", "fs:write:a/a.md", False),
        ("fs:write:**/*.md", "fs:write:a/b/c.md", True),
        ("fs:write:**/*.md", "fs:write:c.md", True),
        ("fs:write:?.md", "fs:write:c.md", True),
        ("fs:write:?.md", "fs:write:*.md", False),
        ("fs:write:[ab].md", "fs:write:a.md", False),
        ("net:outbound:api.example.com", "net:outbound:API.Example.COM.", True),
        ("net:outbound:api.example.com", "net:outbound:api.example.com:8443", True),
        ("net:outbound:api.example.com:443", "net:outbound:api.example.com:8443", False),
        ("net:outbound:api.example.com:443", "net:outbound:api.example.com", False),
        ("net:outbound:*.example.com", "net:outbound:a.b.example.com", True),
        ("net:outbound:*.example.com", "net:outbound:example.com", False),
        ("net:outbound:*.example.com", "net:outbound:evilexample.com", False),
        ("net:outbound:*:443", "net:outbound:a.com:443", True),
        ("net:outbound:*", "net:outbound", True),
        ("net:outbound:bücher.de", "net:outbound:xn--bcher-kva.de", True),
        ("net:outbound:10.0.0.1", "net:outbound:10.0.0.1", True),
        ("net:outbound:[::1]", "net:outbound:[0:0::1]:80", True),
        ("net:outbound", "net:outbound:0x7f000001", False),
        ("net:outbound", "net:outbound:127.1", False),
        ("net:outbound", "net:outbound:2130706433", False),
        ("net:outbound", "net:outbound:a.com@b.com", False),
        ("shell:execute:git *", "shell:execute:git log -3", True),
        ("shell:execute:git *", "shell:execute:git log; rm -r .", False),
        ("shell:execute:git *", "shell:execute:git $(rm)", False),
        ("shell:execute:git *", "shell:execute:git log\nrm -r .", False),
        ("mcp:connect:git*", "mcp:connect:github", True),
        ("own:thing:a:b", "own:thing:a:b", True),
    ],
)
def test_a_grant_covers_the_needs_that_its_pattern_says(grant, need, expected):
    assert covers(grant, need) is expected


@pytest.mark.parametrize(
    "path", ["../a", "a/../b", "/etc/passwd", "//a", "~/x", "~root", "a\0b", "a\nb", "..", "a/.."]
)
def test_a_path_out_of_the_workspace_is_covered_by_nothing(path):
    need = f"fs:write:{path}"
    assert not covers("fs:write", need)
    assert not covers("fs:write:**", need)
    assert not covers(need, need)
    with pytest.raises(ConfigError, match="is no permission"):
        check_permission(need)


@pytest.mark.parametrize(
    "text",
    ["", "fs", "fs:", "fs:read:", ":read", "FS:read", "fs read", "net:outbound:*.0.0.1", "net:outbound:a..b",
     "net:outbound:a.*.b", "net:outbound:a:0", "net:outbound:a:99999", "net:outbound:straße.de",
     "fs:read:a**", "sql:read:a\0b", "fs:read:" + "a" * MAX_PERMISSION],
)  # fmt: skip
def test_what_is_no_permission_is_refused_and_covers_nothing(text):
    with pytest.raises(ConfigError, match="is no permission"):
        check_permission(text)
    assert not covers(text, text)


def test_many_wildcards_take_no_exponential_time():
    grant = "sql:read:" + "*a" * 400
    assert not covers(grant, "sql:read:" + "a" * 399 + "b" * 600)
    assert not covers("fs:read:" + "**/a/" * 180 + "z", "fs:read:" + "a/" * 480 + "b")


def test_a_permission_knows_its_kind():
    found = permission_in("net:outbound:Example.com:443")
    assert found is not None
    assert (found.domain, found.kind, str(found.pattern)) == ("net", "net:outbound", "example.com:443")


def test_the_lesser_mode_is_chosen_and_an_unknown_one_is_the_least():
    assert lesser_mode("auto", None, "act") == "act"
    assert lesser_mode("plan", "auto") == "plan"
    assert lesser_mode(None) == "auto"
    assert lesser_mode("act", "everything") == "ask"
