"""`tool/builtin/web_robots.py`."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import ToolError, ToolPermissionError, ToolServerError
from noesium_stream.tool.builtin.web_robots import KEEP_S, Robots
from noesium_stream.tool.net.client import GuardedClient
from noesium_stream.tool.net.settings import NetSettings
from noesium_stream.tool.net.target import parse_target
from tests.support.hand_clock import HandClock
from tests.support.sites import Site, answer, redirect
from tests.support.web_tools import fetch

GRANTED = ("net:outbound",)
RULES = "User-agent: other\nDisallow: /\n\nUser-agent: *\nDisallow: /private/*.html$\nAllow: /private/open\n"


def robots(site: Site, clock: Any = None) -> Robots:
    client = GuardedClient(NetSettings(allow_private=(site.host,)))
    return Robots(client, "noesium-stream", clock)


async def test_pages_that_a_site_excludes_are_not_fetched() -> None:
    async with Site({"/robots.txt": answer(RULES), "/private/a.html": answer("no")}) as site:
        with pytest.raises(ToolPermissionError, match=r"robots\.txt of 127\.0\.0\.1:\d+ does not allow"):
            await fetch(site, "/private/a.html")
        assert (await fetch(site, "/private/a.html", respect_robots=False))["text"] == "no"
        assert (await fetch(site, "/private/open"))["status"] == 404
    assert [asked.path for asked in site.asked][:2] == ["/robots.txt", "/private/a.html"]


async def test_a_redirect_leads_to_no_excluded_page() -> None:
    async with Site({"/robots.txt": answer(RULES), "/": redirect("/private/a.html")}) as site:
        with pytest.raises(ToolPermissionError):
            await fetch(site)
    assert "/private/a.html" not in [asked.path for asked in site.asked]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
async def test_a_site_without_the_file_allows_everything(status: int) -> None:
    async with Site({"/robots.txt": answer("User-agent: *\nDisallow: /", status)}) as site:
        await robots(site).check(parse_target(site.url("/a")), GRANTED)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_site_that_cannot_say_allows_nothing_now(status: int) -> None:
    async with Site({"/robots.txt": answer("", status)}) as site:
        with pytest.raises(ToolServerError):
            await robots(site).check(parse_target(site.url("/a")), GRANTED)


async def test_a_group_of_its_own_counts_before_that_of_all() -> None:
    text = "User-agent: *\nDisallow: /\nUser-Agent : Noesium-Stream\nAllow: /\n"
    async with Site({"/robots.txt": answer(text)}) as site:
        await robots(site).check(parse_target(site.url("/a")), GRANTED)


async def test_the_file_is_read_again_after_a_while() -> None:
    clock = HandClock()
    async with Site({"/robots.txt": answer("User-agent: *\nDisallow: /")}) as site:
        found = robots(site, clock)
        for _ in range(2):
            with pytest.raises(ToolPermissionError):
                await found.check(parse_target(site.url("/a")), GRANTED)
        site.pages["/robots.txt"] = answer("")
        clock.advance(KEEP_S + 1)
        await found.check(parse_target(site.url("/a")), GRANTED)
    assert len(site.asked) == 2


async def test_a_kept_file_of_one_call_gives_another_no_access() -> None:
    async with Site({"/robots.txt": answer(""), "/": answer("it")}) as site:
        await fetch(site)
        with pytest.raises(ToolPermissionError, match="not granted"):
            await fetch(site, "/", "net:outbound:other.invalid")


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"User-agent: a{number}\n" for number in range(12_000)) + "Disallow: /x\n" * 12_000,
        "User-agent: *\n" + ("Disallow: /" + "*aab" * 2_500 + "$\n") * 40,
        "User-agent: *\nDisallow: /" + "%" * 400_000,
        "\0\x1b" * 200_000,
        "User-agent: *\nAllow: /$\n" * 15_000,
    ],
    ids=["agents", "wildcards", "escapes", "controls", "groups"],
)
async def test_a_hostile_file_takes_little_time(text: str) -> None:
    async with Site({"/robots.txt": answer(text[:500_000])}) as site:
        await robots(site).check(parse_target(site.url("/" + "a" * 5_000)), GRANTED)


async def test_a_file_that_is_too_large_is_an_error() -> None:
    async with Site({"/robots.txt": answer("#" * 600_000)}) as site:
        with pytest.raises(ToolError, match="more than"):
            await robots(site).check(parse_target(site.url("/a")), GRANTED)
