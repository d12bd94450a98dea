"""State of the registered tools: for each tool of an agent the definition in use, and one that waits.

Decision record: a definition that was accepted once stays accepted. While a new version of an agent, or of a
server, is rolled out, workers with the old definition and with the new one serve the same runs; a person has
seen both, or the operator has deployed both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.tool.atomic import ToolSource

FOREIGN_TAG: Final = "source:openapi"
"""Tag of tools that are made from a description which others maintain."""


class Definition(NamedTuple):
    """One definition of a tool.

    Attributes:
        hash: SHA-256 of `raw`, in hexadecimal digits.
        raw: all of `AtomicTool.definition` as canonical JSON (RFC 8785).
        event_id: of its registration.
        since_ms: since when it is in use, or waits.
        accepted_by: who has accepted it; None: nobody had to, or nobody has yet.
    """

    hash: str
    raw: bytes
    event_id: str
    since_ms: int
    accepted_by: str | None = None

    @property
    def value(self) -> Mapping[str, Any]:
        """The definition as JSON; it is shared: do not change it."""
        return _parsed(self.raw)


class RegisteredTool(NamedTuple):
    """A tool of an agent, as the log knows it.

    Attributes:
        agent_type, tool_id: whose, and which.
        current: the definition in use.
        pending: one that is not used until a person accepts it; None: there is none.
        former: hashes of definitions that were in use before; they are accepted, too.
    """

    agent_type: str
    tool_id: str
    current: Definition
    pending: Definition | None = None
    former: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What a model calls it."""
        return str(self.current.value["name"])

    def accepts(self, definition_hash: str) -> bool:
        """Whether a call by this definition may be made."""
        return definition_hash == self.current.hash or definition_hash in self.former


class DefinitionsState:
    """All registered tools.

    Attributes:
        spent: ids of the events that were folded; if one comes again, it changes nothing.
    """

    __slots__ = ("_tools", "spent")

    def __init__(self) -> None:
        self._tools: dict[tuple[str, str], RegisteredTool] = {}
        self.spent: set[str] = set()

    def __len__(self) -> int:
        return len(self._tools)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DefinitionsState):
            return NotImplemented
        return (self._tools, self.spent) == (other._tools, other.spent)

    __hash__ = None  # type: ignore[assignment]

    def get(self, agent_type: str, tool_id: str) -> RegisteredTool | None:
        """A tool of an agent; None: it was never registered."""
        return self._tools.get((agent_type, tool_id))

    def put(self, tool: RegisteredTool) -> None:
        """Add or replace a tool."""
        self._tools[tool.agent_type, tool.tool_id] = tool

    def tools(self) -> Iterator[RegisteredTool]:
        """All tools, by agent type and tool id."""
        for key in sorted(self._tools):
            yield self._tools[key]

    def is_accepted(self, agent_type: str, tool_id: str, definition_hash: str) -> bool:
        """Whether a call by this definition may be made."""
        tool = self.get(agent_type, tool_id)
        return tool is not None and tool.accepts(definition_hash)


def is_foreign(definition: Mapping[str, Any]) -> bool:
    """Whether others than the operator maintain a definition, and may change it without his doing."""
    return definition["source"] == ToolSource.MCP or FOREIGN_TAG in definition["tags"]


@lru_cache(maxsize=4_096)
def _parsed(raw: bytes) -> Mapping[str, Any]:
    value: Mapping[str, Any] = orjson.loads(raw)
    return value
