"""The tools of one agent in one process: by name, started and stopped, called by one executor."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from noesium_stream.errors import ConfigError, ToolNotFoundError
from noesium_stream.kernel.step.position import Place
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.convert import atomic_tools
from noesium_stream.tool.executor import ToolExecutor
from noesium_stream.tool.function import SERVES
from noesium_stream.tool.gate import Accepted
from noesium_stream.tool.inner_calls import recorded_tool
from noesium_stream.tool.toolkit import AsyncBaseToolkit, BaseToolkit

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_SHOWN: Final = 20


class AgentToolbox:
    """The tools that an agent names: functions, `AtomicTool`s, toolkits, tools of LangChain, MCP servers.

    Args:
        given: what the agent names.
        executor: calls them.

    Raises:
        ConfigError: two tools have the same name, or one is no valid tool.
    """

    def __init__(self, given: Iterable[Any], executor: ToolExecutor) -> None:
        self.executor = executor
        self._given = tuple(given)
        self._named = len(self._given)
        self._started: list[AsyncBaseToolkit] = []
        self._by_name: dict[str, AtomicTool] = {}
        self._changed = False
        self._followed: set[int] = set()
        self._of_graph: dict[int, tuple[BaseTool, AtomicTool]] = {}
        self._collect()

    @property
    def given(self) -> tuple[Any, ...]:
        """What the agent names, its skills' tools, and those of its graph."""
        return self._given

    def __iter__(self) -> Iterator[AtomicTool]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def trust(self, accepted: Accepted) -> None:
        """Call a tool only while `accepted` says that its definition is in force."""
        self.executor = replace(self.executor, accepted=accepted)

    async def start(self) -> None:
        """Start the toolkits, and ask them again which tools they have.

        Raises:
            NoesiumError: one cannot be used here; those before it are stopped.
        """
        try:
            for one in self._given:
                if isinstance(one, BaseToolkit):
                    one.prepare(self.executor.working_directory)
                if isinstance(one, AsyncBaseToolkit):
                    await one.start()
                    self._started.append(one)
                    if id(one) not in self._followed:
                        self._followed.add(id(one))
                        one.on_change(self._note_change)
        except BaseException:
            await self.stop()
            raise
        self._collect()

    async def stop(self) -> None:
        """Stop the toolkits that were started, the last one first."""
        while self._started:
            await self._started.pop().stop()

    def get(self, name: str) -> AtomicTool:
        """The tool of this name, as it is defined now.

        Raises:
            ToolNotFoundError: there is none.
        """
        found = self._by_name.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self._by_name, 1)
            has = f"It has {', '.join(list(self._by_name)[:_SHOWN]) or 'none'}."
            raise ToolNotFoundError(
                f"{self.executor.agent_type} has no tool {name[:200]!r}.",
                hint=f"Did you mean {near[0]!r}?" if near else has,
            )
        return found

    def of_graph(self, tool: BaseTool) -> AtomicTool | None:
        """The tool that a tool of LangChain in the agent's graph is; None: it was not found there."""
        known = self._of_graph.get(id(tool))
        return None if known is None else known[1]

    def add_of_graph(self, tool: BaseTool, node: str) -> None:
        """Add a tool of LangChain that a node of the agent's graph calls.

        One that the agent names is that one, with what is declared about it. Of two tools of the graph with
        the same name, the second one is called `NODE.NAME` on the log.

        Args:
            tool: the tool.
            node: the path of the node in the graph.

        Raises:
            ConfigError: the agent names another tool of this name, or it is no valid tool.
        """
        if id(tool) in self._of_graph:
            return
        (found,) = atomic_tools(tool)
        shown = getattr(getattr(tool, "coroutine", None), SERVES, None) is found
        same = next((one for one in self if _is_same(one, found, shown)), None)
        if same is None:
            other = self._by_name.get(found.name)
            if other is not None and all(other is not one for one in self._given[self._named :]):
                raise ConfigError(
                    f"The node {node} has a tool {found.name}, and {self.executor.agent_type} names another "
                    "one of this name.",
                    hint="Rename one of them, or give the node what the agent names.",
                )
            if other is not None:
                found = replace(found, name=_qualified(node, found.name))
            self._given = (*self._given, found)
            self._collect()
        self._of_graph[id(tool)] = (tool, same or found)

    async def call_shown(
        self, place: Place, tool: AtomicTool, arguments: Mapping[str, Any], key: str | None
    ) -> Any:
        """Call one of the agent's tools that was shown to a model; `key` is the call's id there.

        Raises:
            ToolNotFoundError: it is none of the agent's.
            Exception: as `Step.tool`.
        """
        if self._changed:
            self.refresh()
        found = self.get(tool.name)
        if found.tool_id != tool.tool_id:
            raise ToolNotFoundError(
                f"{self.executor.agent_type} has a tool {tool.name}, but not {tool.tool_id}.",
                hint="Name it in the agent's class attribute `tools`.",
            )
        return await self.executor.call(place, found, arguments, key=key)

    async def call(self, place: Place, name: str, arguments: Mapping[str, Any]) -> Any:
        """See `Step.tool`."""
        if self._changed:
            self.refresh()
        found = self._by_name.get(name)
        if found is None and place.journal.limits is None:
            found = recorded_tool(place, name, {"arguments": dict(arguments)})
        return await self.executor.call(place, found or self.get(name), arguments)

    def refresh(self) -> None:
        """Ask the toolkits again which tools they have: a server's may have changed.

        Raises:
            ConfigError: as when the toolbox was made; the tools are as before then.
        """
        self._collect()

    def _note_change(self) -> None:
        self._changed = True

    def _collect(self) -> None:
        found: dict[str, AtomicTool] = {}
        for one in self._given:
            for tool in atomic_tools(one):
                if found.setdefault(tool.name, tool) is not tool:
                    raise ConfigError(
                        f"{self.executor.agent_type} has two tools {tool.name}.", hint="Rename one of them."
                    )
        self._by_name, self._changed = found, False


def _is_same(one: AtomicTool, found: AtomicTool, shown: bool) -> bool:
    """Whether a tool is the one that was found in a graph, or one that was shown as a tool of LangChain."""
    if shown:
        return one.tool_id == found.tool_id
    made_from, also = getattr(one.function, SERVES, one), getattr(found.function, SERVES, found)
    return _origin(made_from) is _origin(also)


def _origin(made_from: Any) -> Any:
    return getattr(made_from, "coroutine", None) or getattr(made_from, "func", None) or made_from


def _qualified(node: str, name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{node}.{name}")[-128:]
