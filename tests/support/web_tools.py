"""The web tools as an executor calls them: checked arguments, a context with grants, checked results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.builtin.web import WebToolkit
from noesium_stream.tool.context import ToolContext
from tests.support.sites import Site


async def here(host: str, port: int) -> Sequence[str]:
    """Every name is this machine."""
    return ["127.0.0.1"]


def context(*granted: str) -> ToolContext:
    """The context of a call; without arguments it may reach every host."""
    return ToolContext("clerk", Path("/nowhere"), granted or ("net:outbound",))


def the_tool(site: Site, name: str = "web_fetch", **settings: Any) -> AtomicTool:
    """A tool of the toolkit `web` that may reach a site, and `two.invalid`."""
    toolkit = WebToolkit(resolver=here, **{"allow_private": (site.host, "two.invalid"), **settings})
    return next(one for one in toolkit.tools() if one.name == name)


async def fetch(site: Site, path: str = "/", *granted: str, **settings: Any) -> dict[str, Any]:
    """Fetch a page of a site."""
    fetching = the_tool(site, **settings)
    arguments = {"url": site.url(path)}
    fetching.check_input(arguments)
    page = await fetching.execute(arguments, context(*granted))
    fetching.check_output(page)
    return dict(page)
