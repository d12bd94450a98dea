"""Tokens for OAUTHBEARER: fetched once, replaced before they expire, never taken from a strange answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from noesium_stream.errors import LogUrlError
from noesium_stream.log.kafka.settings import kafka_settings
from noesium_stream.log.kafka.token import MAX_BYTES, TokenError, TokenSource, token_of
from noesium_stream.log.url import parse_url
from tests.support.tokens import CLIENT, SECRET, TokenServer, token_server


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


async def test_a_token_is_shared_until_it_is_about_to_expire(server: TokenServer) -> None:
    source = TokenSource(server.url, CLIENT, SECRET, "kafka write")
    now = [0.0]
    source.now = lambda: now[0]
    first = await source.token()
    assert source.for_librdkafka("") == (first, 600.0)
    assert len(server.requests) == 1
    assert server.requests[0]["body"] == "grant_type=client_credentials&scope=kafka+write"
    now[0] = 569.0
    await source.token()
    assert len(server.requests) == 1
    now[0] = 570.0
    await source.token()
    assert len(server.requests) == 2
    now[0], server.answer = 1_145.0, (500, b"")
    await source.token()  # the known one has not expired yet
    now[0] = 1_171.0
    with pytest.raises(TokenError, match="answers 500"):
        await source.token()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b"no"), "answers 401"),
        ((302, b""), "answers 302"),
        ((200, b"{" * 1_000), "no access_token"),
        ((200, b"[" * 60_000), "no access_token"),
        ((200, b"[]"), "no access_token"),
        ((200, b'{"access_token": 5}'), "no access_token"),
        ((200, json.dumps({"access_token": "a\nb"}).encode()), "no access_token"),
        ((200, b'{"access_token": "a", "expires_in": "x"}'), "no number of seconds"),
        ((200, b'{"access_token": "a", "expires_in": -1}'), "no number of seconds"),
        ((200, b'{"access_token": "a", "expires_in": NaN}'), "no number of seconds"),
        ((200, b" " * (MAX_BYTES + 1)), "more than 65,536 bytes"),
    ],
)
async def test_a_strange_answer_is_no_token(server: TokenServer, answer: Any, said: str) -> None:
    server.answer = answer
    source = TokenSource(server.url, CLIENT, SECRET)
    with pytest.raises(TokenError, match=said) as raised:
        await source.token()
    assert SECRET not in str(raised.value)


async def test_an_endpoint_that_is_away_is_told(server: TokenServer) -> None:
    source = TokenSource("http://127.0.0.1:1/token", CLIENT, SECRET)
    with pytest.raises(TokenError, match="cannot be reached: ConnectionRefusedError"):
        await source.token()


def test_a_token_lasts_a_day_at_most() -> None:
    assert token_of(b'{"access_token": "a", "expires_in": 1e300}', 0.0).until_s == 86_370.0
    assert token_of(b'{"access_token": "a"}', 0.0).until_s == 270.0
    assert token_of(b'{"access_token": "a", "expires_in": 10}', 0.0).until_s == 5.0


@pytest.mark.parametrize(
    "url", ["http://example.org/token", "ftp://localhost/", "file:///etc/passwd", "token"]
)
def test_a_secret_is_sent_over_https_alone(url: str) -> None:
    with pytest.raises(LogUrlError, match="no https URL"):
        TokenSource(url, CLIENT, SECRET)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(LogUrlError, match="takes a token endpoint") as raised:
        kafka_settings(
            parse_url("kafka://id@localhost?mechanism=oauthbearer"), {"NOESIUM_KAFKA_PASSWORD": "x"}
        )
    assert "NOESIUM_KAFKA_TOKEN_URL" in (raised.value.hint or "")
