"""The built-in toolkit `web`: fetch pages, and search over a configured endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field
from typing_extensions import TypedDict

from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.builtin.web_search import MAX_RESULTS, SearchEndpoint, SearchResult, search
from noesium_stream.tool.builtin.web_text import text_of
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.extra import import_extra
from noesium_stream.tool.function import tool
from noesium_stream.tool.net.client import Call, GuardedClient
from noesium_stream.tool.net.resolve import Resolver, system_resolver
from noesium_stream.tool.net.settings import NetSettings
from noesium_stream.tool.net.target import Target
from noesium_stream.tool.toolkit import BaseToolkit, ToolkitConfig, register_toolkit

_ROBOTS: Final = "noesium_stream.tool.builtin.web_robots"
_ACCEPT: Final = {
    "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.8,application/pdf;q=0.7"
}


class Page(TypedDict):
    """A page that was fetched. `truncated`: it has more text than the limit."""

    url: str
    status: int
    content_type: str
    title: str
    text: str
    truncated: bool


class WebConfig(ToolkitConfig):
    """Settings of the toolkit `web`, set by an operator.

    Attributes:
        allow_private: hosts, each with an optional port, that may have private addresses.
        user_agent: the header `User-Agent`; robots.txt is asked for its name.
        respect_robots: whether robots.txt is respected.
        max_bytes: size of a page, as it comes and as it unpacks.
        max_characters: characters of a page's text.
        timeout_s: the time of one call, in seconds, with all redirects.
        ca_file: a file of certificates to trust beside the usual ones.
        search: where searches are made; None: there is no tool `web_search`.
    """

    allow_private: tuple[str, ...] = ()
    user_agent: str = "noesium-stream"
    respect_robots: bool = True
    max_bytes: int = Field(5_000_000, ge=1, le=100_000_000)
    max_characters: int = Field(200_000, ge=1, le=10_000_000)
    timeout_s: float = Field(25.0, gt=0, le=600)
    ca_file: Path | None = None
    search: SearchEndpoint | None = None

    @property
    def net(self) -> NetSettings:
        """Settings of the client."""
        return NetSettings(
            allow_private=self.allow_private,
            max_bytes=self.max_bytes,
            total_s=self.timeout_s,
            user_agent=self.user_agent,
            ca_file=None if self.ca_file is None else str(self.ca_file),
        )


@register_toolkit("web")
class WebToolkit(BaseToolkit):
    """Tools that read the web: `web_fetch`, and `web_search` where an endpoint is configured.

    Results carry the label `web`: what a page says is not trusted.
    """

    Config: ClassVar[type[ToolkitConfig]] = WebConfig
    source: ClassVar[ToolSource] = ToolSource.BUILTIN
    config: WebConfig

    def __init__(
        self, config: ToolkitConfig | None = None, *, resolver: Resolver = system_resolver, **settings: Any
    ) -> None:
        super().__init__(config, **settings)
        self._client = GuardedClient(self.config.net, resolver)
        self._robots: Any = None

    def tools(self) -> list[AtomicTool]:
        """`web_fetch`, and `web_search` if there is an endpoint."""
        endpoint = self.config.search
        found = {one.name: one for one in super().tools()}
        if endpoint is None:
            return [found["web_fetch"]]
        return [found["web_fetch"], replace(found["web_search"], permissions=(endpoint.need,))]

    @tool(
        name="web_fetch",
        side_effects=SideEffectClass.PURE,
        permissions=("net:outbound:{url|host}",),
        labels=("web",),
        tags=("category:web",),
    )
    async def fetch(self, url: str, context: ToolContext) -> Page:
        """Fetch a page of the web and read its text: HTML as Markdown, PDF, JSON and other text as it is."""
        granted = context.granted_permissions

        async def may_read(target: Target) -> None:
            await self._robots_file().check(target, granted)

        before = may_read if self.config.respect_robots else None
        answer = await self._client.request(Call(url, granted, headers=_ACCEPT, before=before))
        text = await text_of(answer, self.config.max_characters)
        return {
            "url": answer.url,
            "status": answer.status,
            "content_type": text.media_type,
            "title": text.title,
            "text": text.text,
            "truncated": text.truncated,
        }

    @tool(name="web_search", side_effects=SideEffectClass.PURE, labels=("web",), tags=("category:search",))
    async def search(
        self,
        query: Annotated[str, Field(min_length=1, max_length=1_000)],
        context: ToolContext,
        most: Annotated[int, Field(ge=1, le=MAX_RESULTS)] = 10,
    ) -> Sequence[SearchResult]:
        """Search the web: titles, links and snippets of the first results."""
        endpoint = self.config.search
        assert endpoint is not None, "without an endpoint there is no such tool"
        return await search(self._client, endpoint, query, most, context.granted_permissions)

    def _robots_file(self) -> Any:
        if self._robots is None:
            module = import_extra(_ROBOTS, "web", "Reading robots.txt")
            self._robots = module.Robots(self._client, self.config.user_agent)
        return self._robots
