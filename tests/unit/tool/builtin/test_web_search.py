"""`tool/builtin/web_search.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, ToolExecutionError, ToolPermissionError
from tests.support.sites import Site, answer
from tests.support.web_tools import context, the_tool

SEARXNG = {
    "query": "tea",
    "results": [
        {"title": "Tea", "url": "https://tea.example/", "content": "All about tea.", "score": 1.0},
        {"title": "More", "url": "https://more.example/"},
        {"title": "Bad", "url": "javascript:alert(1)"},
        "no result",
    ],
}


async def search(site: Site, query: str = "tea", most: int = 10, **endpoint: Any) -> list[dict[str, str]]:
    searching = the_tool(site, "web_search", search={"url": site.url("/search"), **endpoint})
    arguments = {"query": query, "most": most}
    searching.check_input(arguments)
    found = await searching.execute(arguments, context(*searching.permissions))
    searching.check_output(found)
    return list(found)


async def test_searxng_is_searched_without_further_settings() -> None:
    async with Site({"/search": answer(json.dumps(SEARXNG), 200, "application/json")}) as site:
        found = await search(site, "green tea & more")
        assert len(await search(site, most=1)) == 1
    assert found == [
        {"title": "Tea", "url": "https://tea.example/", "snippet": "All about tea."},
        {"title": "More", "url": "https://more.example/", "snippet": ""},
    ]
    assert site.asked[0].path == "/search?format=json&q=green+tea+%26+more"


async def test_another_endpoint_is_described_by_pointers_and_gets_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEARCH_KEY", "hidden-key")
    body = json.dumps(
        {"web": {"hits": [{"name": "Tea", "at": {"href": "https://tea.example/"}, "say": "Yes."}]}}
    )
    async with Site({"/search": answer(body)}) as site:
        found = await search(
            site,
            query="tea",
            **{
                "parameters": {},
                "results": "/web/hits",
                "title": "/name",
                "link": "/at/href",
                "snippet": "/say",
            },
            **{"key_env": "SEARCH_KEY", "key_header": "X-Subscription-Token", "key_prefix": ""},
        )
    assert found == [{"title": "Tea", "url": "https://tea.example/", "snippet": "Yes."}]
    assert site.asked[0].headers["x-subscription-token"] == "hidden-key"


@pytest.mark.parametrize(
    ("body", "status"),
    [("{", 200), ("[]", 200), ('{"results": {}}', 200), ("[" * 5_000, 200), (json.dumps(SEARXNG), 403)],
)
async def test_an_answer_of_another_form_is_an_error(body: str, status: int) -> None:
    async with Site({"/search": answer(body, status)}) as site:
        with pytest.raises(ToolExecutionError):
            await search(site)


async def test_a_missing_key_is_said_before_anything_is_sent() -> None:
    async with Site() as site:
        with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
            await search(site, key_env="NO_SUCH_KEY")
    assert site.asked == []


async def test_it_needs_the_host_of_the_endpoint_alone() -> None:
    async with Site({"/search": answer(json.dumps(SEARXNG))}) as site:
        searching = the_tool(site, "web_search", search={"url": site.url("/search")})
        assert searching.permissions == (f"net:outbound:127.0.0.1:{site.port}",)
        with pytest.raises(ToolPermissionError):
            await searching.execute({"query": "tea"}, context("net:outbound:tea.example"))
    assert site.asked == []
