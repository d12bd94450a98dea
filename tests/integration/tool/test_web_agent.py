"""Web tools under the executor: grants bound every hop, outcomes are recorded, and a replay calls nothing."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool.builtin.web import WebToolkit
from noesium_stream.tool.openapi import OpenApiToolkit
from tests.support.shop_api import shop
from tests.support.sites import Site, answer, redirect


class Reading(TypedDict, total=False):
    url: str
    text: str
    status: int


async def read(state: Reading) -> dict[str, Any]:
    page = await current_step().tool("web_fetch", url=state["url"])
    gone = await current_step().tool("deleteItem", id=page["text"])
    return {"text": page["text"], "status": gone["status"]}


def reader(site: Site, *permissions: str) -> Any:
    graph = StateGraph(Reading)
    graph.add_node("read", read)
    graph.add_edge(START, "read")
    kind = agent_from_graph(graph, "reader")
    private = (site.host, f"localhost:{site.port}")
    kind.tools = (
        WebToolkit(allow_private=private, respect_robots=False),
        OpenApiToolkit(shop(site.url("/v1")), allow_private=private),
    )
    kind.mode, kind.permissions = "auto", permissions
    return kind


async def test_a_page_is_fetched_once_and_a_replay_calls_nothing() -> None:
    async with Site({"/page": answer("7"), "/v1/items/7": answer("", 204)}) as site:
        kind = reader(site, f"net:outbound:127.0.0.1:{site.port}")
        async with Rehearsal(kind) as rehearsal:
            run = await rehearsal.start({"url": site.url("/page")})
            result = await run.result()
            handle = await rehearsal.client.get_run(run.id)
            assert (await verify(handle, agent_target(kind, rehearsal.log))).difference is None
    assert (result["text"], result["status"]) == ("7", 204)
    assert [(asked.method, asked.path) for asked in site.asked] == [
        ("GET", "/page"),
        ("DELETE", "/v1/items/7"),
    ]


async def test_a_redirect_does_not_leave_the_grants_of_the_agent() -> None:
    async with Site({"/secret": answer("secret")}) as site:
        site.pages["/page"] = redirect(site.url("/secret", "localhost"))
        async with Rehearsal(reader(site, f"net:outbound:127.0.0.1:{site.port}")) as rehearsal:
            run = await rehearsal.start({"url": site.url("/page")})
            with pytest.raises(RunFailedError, match="not granted net:outbound:localhost"):
                await run.result()
            events = await run.history()
    assert [asked.path for asked in site.asked] == ["/page"]
    tools = [event.event_type for event in events if event.event_type.startswith("tool.")]
    assert tools == ["tool.invoked", "tool.failed"]


async def test_a_host_outside_the_grants_is_denied_before_anything_is_sent() -> None:
    async with Site() as site, Rehearsal(reader(site, "net:outbound:example.com")) as rehearsal:
        run = await rehearsal.start({"url": site.url("/page")})
        with pytest.raises(RunFailedError):
            await run.result()
        events = await run.history()
    assert site.asked == []
    assert "tool.denied" in [event.event_type for event in events]
