"""Servers that are enemies: what they send costs a bounded amount of memory and time, and reaches nothing."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Sequence

import brotli
import pytest

from noesium_stream.errors import ToolError, ToolExecutionError, ToolPermissionError, ToolServerError
from noesium_stream.tool.net.client import Call, GuardedClient, SentError
from noesium_stream.tool.net.settings import NetSettings
from tests.support.sites import Site, answer, endless, redirect, silent

GRANTED = ("net:outbound",)
LIMIT = 100_000
HEAD = b"HTTP/1.1 200 OK\r\n"
PRIVATE = (
    "http://127.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://0.0.0.0:{port}/",
    "http://10.0.0.1/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST.:{port}/",
)


def bomb(size: int = 50_000_000) -> bytes:
    """Some kilobytes of gzip that unpack to `size` bytes."""
    return gzip.compress(bytes(size))


async def asking(site: Site, path: str = "/", **settings: float | int) -> bytes:
    limits = {"max_bytes": LIMIT, "total_s": 20.0, **settings}
    client = GuardedClient(NetSettings(allow_private=(site.host,), **limits))  # type: ignore[arg-type]
    return (await client.request(Call(site.url(path), GRANTED))).body


@pytest.mark.parametrize("url", PRIVATE)
async def test_private_addresses_are_not_called_however_they_are_written(url: str) -> None:
    async with Site({"/": answer("secret")}) as site:
        with pytest.raises(ToolError):
            await GuardedClient(NetSettings()).request(Call(url.format(port=site.port), GRANTED))
    assert site.asked == []


@pytest.mark.parametrize("url", PRIVATE)
async def test_redirects_to_private_addresses_are_not_followed(url: str) -> None:
    async with Site({"/": answer("secret")}) as inner, Site() as site:
        site.pages["/"] = redirect(url.format(port=inner.port))
        with pytest.raises(ToolError):
            await asking(site)
    assert inner.asked == []


async def test_a_name_that_answers_a_private_address_the_second_time_is_refused() -> None:
    answers = itertools.chain([["127.0.0.1"]], itertools.repeat(["10.0.0.1"]))

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async with Site() as site:
        site.pages["/"] = redirect("/again")
        # the second request resolves again, and is judged again
        client = GuardedClient(NetSettings(allow_private=(f"once.invalid:{site.port}",)), rebinding)
        site.pages["/"] = redirect("http://once.invalid/again")
        with pytest.raises(ToolPermissionError, match="not of the public internet"):
            await client.request(Call(site.url("/", "once.invalid"), GRANTED))
    assert [asked.path for asked in site.asked] == ["/"]


async def test_one_private_address_among_public_ones_is_enough() -> None:
    async def mixed(host: str, port: int) -> Sequence[str]:
        return ["1.1.1.1", "::ffff:127.0.0.1"]

    with pytest.raises(ToolPermissionError):
        await GuardedClient(NetSettings(), mixed).request(Call("http://mixed.invalid/", GRANTED))


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (bomb(), {"Content_Encoding": "gzip"}, "more than 100,000 bytes"),
        (gzip.compress(bomb()), {"Content_Encoding": "gzip, gzip"}, "not asked for"),
        (brotli.compress(bytes(50_000_000)), {"Content_Encoding": "br"}, "not asked for"),
        (zlib.compress(bytes(50_000_000)), {"Content_Encoding": "deflate"}, "not asked for"),
        (bomb(1_000)[:-9], {"Content_Encoding": "gzip"}, "incomplete"),
        (bomb(1_000) * 1_000, {"Content_Encoding": "gzip"}, "behind the end"),
        (b"no gzip", {"Content_Encoding": "gzip"}, "damaged"),
        (b"x" * (LIMIT + 1), {}, "more than 100,000 bytes"),
    ],
    ids=["gzip", "twice", "brotli", "deflate", "cut off", "many", "damaged", "large"],
)
async def test_bombs_are_refused(body: bytes, headers: dict[str, str], reason: str) -> None:
    async with Site({"/": answer(body, 200, "text/html", **headers)}) as site:
        with pytest.raises(ToolExecutionError, match=reason):
            await asking(site)


async def test_a_gzip_body_within_the_limit_is_unpacked() -> None:
    async with Site({"/": answer(bomb(LIMIT), Content_Encoding="x-gzip")}) as site:
        assert await asking(site) == bytes(LIMIT)


@pytest.mark.parametrize(
    "page",
    [
        endless(HEAD + b"\r\n", b"x" * 1_000),
        endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"3e8\r\n" + b"x" * 1_000 + b"\r\n"),
        endless(HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10], bytes(1_000)),
        endless(HEAD, b"X-More: " + b"y" * 1_000 + b"\r\n"),
        endless(b"", b"HTTP/1.1 " + b"2" * 1_000),
        endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: " + b"y" * 1_000 + b"\r\n"),
        HEAD + b"Content-Length: 999999999999999999999999\r\n\r\nx",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        HEAD + b"Content-Length: 500\r\n\r\nshort",
        HEAD + b"Content-Length: -5\r\n\r\nhello",
        HEAD + b"".join(b"X-%d: y\r\n" % number for number in range(1_000)) + b"\r\nx",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"",
    ],
    ids=(
        *("body", "chunks", "gzip", "headers", "status line", "trailers", "huge length", "two lengths"),
        *("short", "negative length", "many headers", "ssh", "tls", "nothing"),
    ),
)
async def test_endless_and_lying_answers_are_refused(page: bytes) -> None:
    async with Site({"/": page}) as site:
        with pytest.raises((ToolExecutionError, ToolServerError)) as refused:
            await asking(site)
    assert len(str(refused.value)) < 300


async def test_more_bytes_than_announced_are_not_read() -> None:
    async with Site({"/": HEAD + b"Content-Length: 5\r\n\r\nhello and more"}) as site:
        assert await asking(site) == b"hello"


@pytest.mark.parametrize("first", [b"", HEAD, HEAD + b"X: y\r\n", HEAD + b"Content-Length: 5\r\n\r\nhel"])
async def test_slow_answers_end_with_the_time_of_the_call(first: bytes) -> None:
    async with Site({"/": silent(first)}) as site:
        with pytest.raises(ToolServerError, match=r"did not answer in 0\.2 s"):
            await asking(site, total_s=0.2)
        with pytest.raises(SentError, match="does not go on"):
            await asking(site, silence_s=0.1)


async def test_informational_answers_without_end_end_with_the_time_of_the_call() -> None:
    async with Site({"/": endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")}) as site:
        with pytest.raises(ToolServerError, match=r"did not answer in 0\.3 s"):
            await asking(site, total_s=0.3)


@pytest.mark.parametrize(
    "location", ["/" + "x" * 50_000, "http://[", "http://a b/", "\x1b[31m", "http://é@b/"]
)
async def test_redirects_that_are_no_urls_are_refused(location: str) -> None:
    async with Site({"/": redirect(location)}) as site:
        with pytest.raises(ToolError) as refused:
            await asking(site)
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 600
