"""Search over an HTTP endpoint that gives JSON: SearXNG, or any whose answer JSON pointers can describe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from jsonpointer import JsonPointer, JsonPointerException
from pydantic import BaseModel, ConfigDict, field_validator
from typing_extensions import TypedDict

from noesium_stream.errors import ConfigError, ToolError, ToolExecutionError
from noesium_stream.tool.net.client import Answer, Call, GuardedClient
from noesium_stream.tool.net.grants import need_of
from noesium_stream.tool.net.target import parse_target

MAX_RESULTS: Final = 50
MAX_FIELD: Final = 2_000
"""Characters of a title, a link or a snippet."""


class SearchResult(TypedDict):
    """One result of a search."""

    title: str
    url: str
    snippet: str


class SearchEndpoint(BaseModel):
    """Where searches are made; the defaults are those of SearXNG.

    Attributes:
        url: the endpoint; it gets a GET request.
        query: the parameter that takes the query.
        parameters: further parameters of each request.
        results: JSON pointer to the list of results in an answer.
        title, link, snippet: JSON pointers within one result.
        key_env: the variable of the worker's environment that holds the key; None: there is no key.
        key_header: the header that carries the key.
        key_prefix: stands before the key, such as `Bearer `.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    query: str = "q"
    parameters: Mapping[str, str] = {"format": "json"}
    results: str = "/results"
    title: str = "/title"
    link: str = "/url"
    snippet: str = "/content"
    key_env: str | None = None
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        try:
            parse_target(url)
        except ToolError as error:
            raise ValueError(error.message) from None
        return url

    @field_validator("results", "title", "link", "snippet")
    @classmethod
    def _is_pointer(cls, text: str) -> str:
        try:
            JsonPointer(text)
        except JsonPointerException:
            raise ValueError("is no JSON pointer, such as /results") from None
        return text

    @property
    def need(self) -> str:
        """The permission that a search needs."""
        return need_of(parse_target(self.url))

    def secrets(self) -> dict[str, str]:
        """The header with the key.

        Raises:
            ConfigError: the variable is not set.
        """
        if self.key_env is None:
            return {}
        key = os.environ.get(self.key_env, "")
        if not key or not key.isprintable() or not key.isascii():
            raise ConfigError(
                f"The key for searches is to be in {self.key_env}, which holds none.",
                hint=f"Set {self.key_env} in the worker's environment.",
            )
        return {self.key_header: f"{self.key_prefix}{key}"}


async def search(
    client: GuardedClient, endpoint: SearchEndpoint, query: str, most: int, granted: Sequence[str]
) -> list[SearchResult]:
    """Search, and give the first `most` results.

    Raises:
        ConfigError: there is no key.
        ToolExecutionError: the endpoint refuses, or its answer has another form.
        ToolError: as `GuardedClient.request`.
    """
    parameters = urlencode({**endpoint.parameters, endpoint.query: query})
    url = f"{endpoint.url}{'&' if '?' in endpoint.url else '?'}{parameters}"
    headers = {"Accept": "application/json"}
    answer = await client.request(Call(url, granted, headers=headers, secrets=endpoint.secrets()))
    if answer.status != 200:
        raise ToolExecutionError(f"The search endpoint answers with status {answer.status}.")
    return _results(answer, endpoint, most)


def _results(answer: Answer, endpoint: SearchEndpoint, most: int) -> list[SearchResult]:
    try:
        items = _at(orjson.loads(answer.body), endpoint.results)
    except orjson.JSONDecodeError:
        raise ToolExecutionError("The search endpoint answers with what is no JSON.") from None
    if not isinstance(items, list):
        raise ToolExecutionError(f"The search endpoint's answer has no list at {endpoint.results}.")
    found: list[SearchResult] = []
    for item in items:
        link = _text(item, endpoint.link)
        if link.startswith(("http://", "https://")) and len(found) < most:
            title, snippet = _text(item, endpoint.title), _text(item, endpoint.snippet)
            found.append({"title": title, "url": link, "snippet": snippet})
    return found


def _at(document: Any, pointer: str) -> Any:
    try:
        return JsonPointer(pointer).resolve(document, None)
    except (JsonPointerException, TypeError, ValueError):
        return None


def _text(item: Any, pointer: str) -> str:
    value = _at(item, pointer)
    return value[:MAX_FIELD] if isinstance(value, str) else ""
