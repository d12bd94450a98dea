"""`ToolRegistry`: the tools of a process or of an agent, by id, name, source, tag and words (RFC-2004)."""

from __future__ import annotations

import heapq
import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from noesium_stream.errors import ConfigError, ToolNotFoundError
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.convert import ToolCall, ToolConverter, atomic_tools
from noesium_stream.tool.model_names import ModelNames

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_WORDS: Final = re.compile(r"[^\W_]+")
_NAME_WEIGHT: Final = 4
"""How much more a word of a name counts than one of a description."""
_SHOWN: Final = 20


class ToolRegistry:
    """Tools, each with a name of its own.

    tools = ToolRegistry()
    tools.register(refund)
    tools.register(Clock())
    [one.name for one in tools.choose("pay an order back")]
    """

    def __init__(self) -> None:
        self._by_id: dict[str, AtomicTool] = {}
        self._by_name: dict[str, AtomicTool] = {}
        self._by_tag: defaultdict[str, dict[str, AtomicTool]] = defaultdict(dict)
        self._by_word: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[AtomicTool]:
        return iter(self._by_id.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def register(self, given: Any) -> list[AtomicTool]:
        """Add a function, an `AtomicTool`, all tools of a toolkit, or a tool of LangChain; return what it is.

        The same `AtomicTool` may be added again.

        Raises:
            ConfigError: another tool has this name, or it is no valid tool; nothing is added then.
        """
        found = atomic_tools(given)
        self._add(found)
        return found

    def register_many(self, given: Iterable[Any]) -> list[AtomicTool]:
        """Add several, or none of them.

        Raises:
            ConfigError: as `register`.
        """
        found = [tool for one in given for tool in atomic_tools(one)]
        self._add(found)
        return found

    async def load_mcp_server(self, server: str, **settings: Any) -> list[AtomicTool]:
        """Connect to an MCP server and add its tools; see `noesium_stream.tool.mcp.mcp` for the settings.

        The connection lives as long as the process.

        Raises:
            ConfigError: the extra `mcp` is not installed, or two tools have the same name.
            ToolServerError: the server does not answer.
        """
        try:
            module = importlib.import_module("noesium_stream.tool.mcp")
        except ImportError:
            raise ConfigError(
                "Tools of MCP servers need a further package.", hint="pip install 'noesium-stream[mcp]'"
            ) from None
        toolkit = module.mcp(server, **settings)
        await toolkit.start()
        return self.register(toolkit)

    def get_by_id(self, tool_id: str) -> AtomicTool:
        """The tool of this id, `SOURCE:TOOLKIT.NAME`.

        Raises:
            ToolNotFoundError: there is none.
        """
        return self._found(self._by_id, tool_id)

    def get_by_name(self, name: str) -> AtomicTool:
        """The tool that is called so.

        Raises:
            ToolNotFoundError: there is none.
        """
        return self._found(self._by_name, name)

    def list_tools(
        self, source: ToolSource | str | None = None, tags: Sequence[str] = ()
    ) -> list[AtomicTool]:
        """The tools of this source that have all of these tags, in the order in which they were added."""
        wanted = [*tags, *(() if source is None else (f"source:{ToolSource(source)}",))]
        if not wanted:
            return list(self._by_id.values())
        few, *more = sorted((self._by_tag.get(tag, {}) for tag in wanted), key=len)
        return [tool for tool_id, tool in few.items() if all(tool_id in tagged for tagged in more)]

    def choose(
        self,
        words: str = "",
        *,
        source: ToolSource | str | None = None,
        tags: Sequence[str] = (),
        limit: int = _SHOWN,
    ) -> list[AtomicTool]:
        """The tools that a text is about, best first: by how many of its words they have, and how rare.

        Words of a name count more than words of a description. Without words: as `list_tools`.
        """
        wanted = _words(words)
        if not wanted:
            return self.list_tools(source, tags)[:limit]
        having = [self._by_word[word] for word in wanted if word in self._by_word]
        # A word that most tools have says nothing, unless there is no other.
        telling = [tools for tools in having if 2 * len(tools) <= len(self._by_id)] or having
        among = {tool.tool_id for tool in self.list_tools(source, tags)} if source or tags else None
        scores: defaultdict[str, float] = defaultdict(float)
        for tools in telling:
            for tool_id, weight in tools.items():
                if among is None or tool_id in among:
                    scores[tool_id] += weight / len(tools)
        best = heapq.nsmallest(limit, scores, key=lambda one: (-scores[one], one))
        return [self._by_id[one] for one in best]

    def to_langchain_tools(self, call: ToolCall | None = None) -> list[BaseTool]:
        """All tools as tools of LangChain, under names that models take; `call` makes the calls.

        Without `call`, a call in a node is made by the executor of its agent; outside a node none is made.
        """
        names = ModelNames(self._by_name)
        return [ToolConverter.to_langchain(tool, call, names.for_model(tool.name)) for tool in self]

    def _add(self, found: Sequence[AtomicTool]) -> None:
        named: dict[str, AtomicTool] = {}
        for tool in found:
            other = self._by_name.get(tool.name) or named.setdefault(tool.name, tool)
            if other != tool or other.function != tool.function:
                raise ConfigError(
                    f"There are two tools {tool.name!r}: {other.tool_id} and {tool.tool_id}.",
                    hint="Rename one of them: a model tells tools apart by their names.",
                )
        for tool in named.values():
            self._index(tool)

    def _index(self, tool: AtomicTool) -> None:
        self._by_id[tool.tool_id] = self._by_name[tool.name] = tool
        for tag in tool.all_tags:
            self._by_tag[tag][tool.tool_id] = tool
        for word in _words(tool.description):
            self._by_word[word][tool.tool_id] = 1
        for word in _words(tool.name):
            self._by_word[word][tool.tool_id] = _NAME_WEIGHT

    def _found(self, tools: dict[str, AtomicTool], key: str) -> AtomicTool:
        try:
            return tools[key]
        except KeyError:
            listed = ", ".join(sorted(self._by_name)[:_SHOWN]) or "none"
            raise ToolNotFoundError(
                f"There is no tool {key[:200]!r}.", hint=f"There are: {listed}."
            ) from None


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(_WORDS.findall(text.lower())))
