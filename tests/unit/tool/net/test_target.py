"""`tool/net/target.py`."""

from __future__ import annotations

import contextlib
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import ToolInputError
from noesium_stream.tool.net.target import MAX_URL, parse_target


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "authority"),
    [
        ("http://example.com", "http", "example.com", 80, "example.com"),
        ("HTTPS://EXAMPLE.com.:443/a?b#c", "https", "example.com", 443, "example.com"),
        ("http://example.com:8080/", "http", "example.com", 8080, "example.com:8080"),
        ("https://bücher.example/", "https", "xn--bcher-kva.example", 443, "xn--bcher-kva.example"),
        ("http://127.0.0.1/", "http", "127.0.0.1", 80, "127.0.0.1"),
        ("http://[2606:4700:0::1111]:81/", "http", "2606:4700::1111", 81, "[2606:4700::1111]:81"),
    ],
)
def test_a_url_is_parsed_to_one_form(url: str, scheme: str, host: str, port: int, authority: str) -> None:
    target = parse_target(url)
    assert (target.scheme, target.host, target.port, target.authority) == (scheme, host, port, authority)
    assert "#" not in str(target.url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "http:///path",
        "http://user:secret@example.com/",
        "http://@example.com/",
        "http://user@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://exa mple.com/",
        "http://example.com/\r\nX: y",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://exa%6dple.com/",
        "http://a..b/",
        f"http://{'a' * 64}.example/",
        f"http://example.com/{'a' * MAX_URL}",
    ],
)
def test_what_is_no_url_of_the_web_or_can_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(ToolInputError) as refused:
        parse_target(url)
    assert "secret" not in str(refused.value)
    assert len(str(refused.value)) < 600


@given(st.text(max_size=60) | st.text("htps:/@[].%0x12a\\", max_size=30).map("http://".__add__))
def test_no_text_gives_a_host_that_another_parser_reads_differently(text: str) -> None:
    with contextlib.suppress(ToolInputError):
        target = parse_target(text)
        assert urlsplit(str(target.url)).hostname == target.host
        assert parse_target(str(target.url)) == target


@pytest.mark.parametrize("location", ["http://a/\n", "javascript:alert(1)", "//user@b/", "x" * 9_000])
def test_a_redirect_to_what_is_no_url_is_refused(location: str) -> None:
    with pytest.raises(ToolInputError):
        parse_target("http://a/").join(location)
    assert str(parse_target("http://a/b/c").join("../d").url) == "http://a/d"
