"""The tools on offer: one for each live capability that a requester may call, in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson
from mcp_types import Tool, ToolAnnotations

from noesium_stream.errors import CapabilityNotFoundError, EventValidationError
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.event.trust.grants import grant_of, missing
from noesium_stream.event.trust.policy import Policy, operator_ruling
from noesium_stream.mcp_server.names import skill_named, tool_name
from noesium_stream.serving.offers import Offer, Offers

PAGE: Final = 100
"""Tools of a page."""
MOST_SCHEMA: Final = 64_000
"""Bytes of a schema; a larger one is not shown, and judges all the same."""
TASK_TAG: Final = "mcp:task"
"""Tag of a capability that is called as a task alone."""
INPUT_TAG: Final = "mcp:input"
"""Tag of a capability whose first questions are asked before its call becomes a task."""
CONTENT_TAG: Final = "mcp:content"
"""Tag of a capability whose results are lists of MCP content blocks."""
_MOST_DESCRIPTION: Final = 4_000
_ANY_OBJECT: Final = {"type": "object"}


class Page(NamedTuple):
    """Tools, and the cursor of the next page; None: it is the last one."""

    tools: list[Tool]
    next_cursor: str | None


class Catalogue:
    """What each requester may call.

    Args:
        offers: the live capabilities.
        policy: of the log; None: everybody may call everything.
    """

    def __init__(self, offers: Offers, policy: Policy | None) -> None:
        self._offers = offers
        self._policy = policy
        self._schemas: dict[str, dict[str, Any]] = {}

    async def all(self, requester: str) -> list[Offer]:
        """List what a requester may call.

        Raises:
            LogUnavailableError
        """
        return [offer for offer in await self._offers.all() if self._may(requester, offer)]

    async def page(self, requester: str, cursor: str | None, *, modern: bool) -> Page:
        """Return the tools behind a cursor: the name of the last tool that was shown.

        Raises:
            LogUnavailableError
        """
        tools = [tool_of(offer, modern=modern) for offer in await self.all(requester)]
        found = sorted((tool for tool in tools if tool is not None), key=lambda tool: tool.name)
        rest = found if cursor is None else [tool for tool in found if tool.name > cursor]
        return Page(rest[:PAGE], rest[PAGE - 1].name if len(rest) > PAGE else None)

    async def find(self, name: str, version: str | None, requester: str) -> Offer:
        """Find what a call is for.

        Raises:
            CapabilityNotFoundError: the requester may call no such tool.
            ConfigError: the version is not a valid range.
        """
        skill = skill_named(name, (offer.skill for offer in await self.all(requester)))
        if skill is None:
            raise CapabilityNotFoundError(f"There is no tool {name[:200]}.")
        offer = await self._offers.choose(skill, version)
        if not self._may(requester, offer):
            raise CapabilityNotFoundError(f"There is no tool {name[:200]} {(version or '')[:50]}.")
        return offer

    async def types(self, name: str) -> list[str]:
        """List the agent types that serve a tool, or have served it."""
        skill = skill_named(name, (offer.skill for offer in await self._offers.all()))
        return await self._offers.types(skill or name)

    async def digest(self) -> bytes:
        """Return what changes when the tools do; and remember their schemas."""
        tools = [tool for tool in map(_modern, await self._offers.all()) if tool is not None]
        self._schemas = {tool.name: tool.input_schema for tool in tools}
        return orjson.dumps([tool.model_dump(mode="json", exclude_none=True) for tool in tools])

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool, as of the last digest."""
        return self._schemas.get(name)

    def _may(self, requester: str, offer: Offer) -> bool:
        if self._policy is None:
            return True
        if operator_ruling(self._policy, requester, "start", offer.agent_type).refused is not None:
            return False
        capability = offer.capability
        grant = grant_of(self._policy, requester)
        return capability is None or (
            missing(capability.required_roles, capability.required_scopes, grant) is None
        )


def is_tagged(offer: Offer, tag: str) -> bool:
    """Whether a capability has a tag."""
    return offer.capability is not None and tag in offer.capability.tags


def tool_of(offer: Offer, *, modern: bool) -> Tool | None:
    """Make the tool of an offer; None: its input is no object, so that nothing could be called.

    Args:
        offer: what is on offer.
        modern: whether an output schema may be another than that of an object.
    """
    capability = offer.capability
    if capability is None:
        text = f"A run of the agent {offer.agent_type}; its input is a JSON object."
        return Tool(name=tool_name(offer.skill), description=text, input_schema=_ANY_OBJECT)
    if capability.input_schema.get("type", "object") != "object":
        return None
    return Tool(
        name=tool_name(offer.skill),
        title=offer.skill if tool_name(offer.skill) != offer.skill else None,
        description=(capability.description or f"{offer.skill} of {offer.agent_type}")[:_MOST_DESCRIPTION],
        input_schema=_shown({**capability.input_schema, "type": "object"}) or _ANY_OBJECT,
        output_schema=_output(capability, modern=modern),
        annotations=ToolAnnotations(
            read_only_hint=capability.side_effects == SideEffectClass.PURE,
            idempotent_hint=capability.side_effects != SideEffectClass.EXTERNAL,
        ),
    )


def _modern(offer: Offer) -> Tool | None:
    return tool_of(offer, modern=True)


def _output(capability: Capability, *, modern: bool) -> dict[str, Any] | None:
    kind = capability.output_schema.get("type")
    if CONTENT_TAG in capability.tags or not isinstance(kind, str) or kind == "null":
        return None  # a result without structured content has to fit, too
    if not modern and kind != "object":
        return None
    return _shown(capability.output_schema)


def _shown(schema: dict[str, Any]) -> dict[str, Any] | None:
    return schema if len(orjson.dumps(schema)) <= MOST_SCHEMA else None


def check_name(field: str, value: object, most: int) -> str:
    """Return a text that a client made up.

    Raises:
        EventValidationError: it is none, too long, or has invisible characters.
    """
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise EventValidationError(field, f"is no text of 1 to {most} visible characters")
    return value
