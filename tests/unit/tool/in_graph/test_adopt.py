"""Tools of a graph's `ToolNode`s become tools of the agent: found, registered, with what is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from typing_extensions import TypedDict

from noesium_stream.agent import BaseGraphicAgent, agent_from_graph
from noesium_stream.errors import ConfigError, KernelError, ToolError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, ToolConverter, ToolRegistry, tool
from noesium_stream.tool.executor import ToolExecutor
from noesium_stream.tool.function import ToolMark
from noesium_stream.tool.in_graph.adopt import adopt_tools
from noesium_stream.tool.in_graph.find import tool_nodes
from noesium_stream.tool.toolbox import AgentToolbox


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]


@langchain_tool
def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


def search_files(query: str) -> str:
    """Search the files."""
    return f"file {query}"


def graph_with(**nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
    return graph


def adopted(graph: StateGraph[Any, Any, Any, Any], *named: Any) -> AgentToolbox:
    box = AgentToolbox(named, ToolExecutor("clerk", Path()))
    adopt_tools(graph.compile(), lambda: box)
    return box


def asking(name: str, **args: Any) -> dict[str, Any]:
    asked = [{"name": name, "args": args, "id": "c", "type": "tool_call"}]
    return {"messages": [{"role": "assistant", "content": "", "tool_calls": asked, "id": "m"}]}


def test_tool_nodes_are_found_wherever_they_are() -> None:
    node, in_sequence, in_subgraph, in_code, unused = (ToolNode([search]) for _ in range(5))

    async def body(state: State) -> Any:
        return await in_code.ainvoke(state)

    inner = graph_with(deep=in_subgraph).compile()
    graph = graph_with(
        plain=node, chain=RunnableLambda(lambda state: state) | in_sequence, inner=inner, code=body
    )
    assert dict(tool_nodes(graph.compile())) == {
        "plain": node,
        "chain": in_sequence,
        "inner.deep": in_subgraph,
        "code": in_code,
    }
    assert unused.func.__name__ == "_func"


def test_a_tool_is_found_once_and_is_external_until_more_is_said() -> None:
    box = adopted(graph_with(one=ToolNode([search]), two=ToolNode([search])))
    (found,) = box
    assert (found.tool_id, found.side_effect_class) == ("langchain:search", SideEffectClass.EXTERNAL)
    assert box.of_graph(search) is found


def summarize(text: str) -> str:
    """Summarize a text."""
    return text[:9]


SAID: Any = tool(side_effects=SideEffectClass.PURE, permissions=("net:outbound",))


@pytest.mark.parametrize(
    "tools", [[SAID(langchain_tool("summarize")(search_files))], [langchain_tool(SAID(summarize))]]
)
def test_what_is_declared_about_a_tool_or_its_function_counts(tools: list[Any]) -> None:
    (found,) = adopted(graph_with(tools=ToolNode(tools)))
    assert (found.name, found.side_effect_class) == ("summarize", SideEffectClass.PURE)
    assert found.permissions == ("net:outbound",)


def test_a_tool_that_the_agent_names_is_that_one() -> None:
    declared = ToolConverter.from_langchain(search, mark=ToolMark(side_effects=SideEffectClass.PURE))
    box = adopted(graph_with(tools=ToolNode([search])), declared)
    assert list(box) == [declared]
    assert box.of_graph(search) is declared
    plain = adopted(graph_with(tools=ToolNode([search_files])), search_files)
    assert [one.tool_id for one in plain] == ["user:search_files"]
    registry = ToolRegistry()
    registry.register(search_files)
    shown = adopted(graph_with(tools=ToolNode(registry.to_langchain_tools())), *registry)
    assert list(shown) == list(registry)
    alone = adopted(graph_with(tools=ToolNode(registry.to_langchain_tools())))
    assert list(alone) == list(registry)


def test_another_tool_under_a_name_that_the_agent_has_is_refused() -> None:
    other = langchain_tool("search")(search_files)
    with pytest.raises(ConfigError, match="The node tools has a tool search, and clerk names another one"):
        adopted(graph_with(tools=ToolNode([other])), search)


def test_two_tools_of_the_graph_with_one_name_are_told_apart_by_their_nodes() -> None:
    other = langchain_tool("search")(search_files)
    inner = graph_with(tools=ToolNode([other])).compile()
    box = adopted(graph_with(tools=ToolNode([search]), researcher=inner))
    assert [one.tool_id for one in box] == ["langchain:search", "langchain:researcher.tools.search"]
    found = box.of_graph(other)
    assert found is not None
    assert found.description == "Search the files."


def test_a_tool_node_of_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ToolNode, "_execute_tool_async")
    with pytest.raises(KernelError, match=r"ToolNode of langgraph-prebuilt .* has no _execute_tool_async"):
        adopted(graph_with(tools=ToolNode([search])))


async def test_outside_a_run_the_node_is_what_it_was() -> None:
    node = ToolNode([search])
    graph = graph_with(tools=node)
    adopted(graph)
    for _ in range(2):
        adopted(graph)  # once is enough
    state = await graph.compile().ainvoke(asking("search", query="tea"))
    also = graph.compile().invoke(asking("search", query="tea"))
    assert state["messages"][-1].content == also["messages"][-1].content == "found tea"


async def test_tools_are_registered_when_the_agent_starts_and_told_apart_in_a_run() -> None:
    other = langchain_tool("search")(search_files)
    inner = graph_with(tools=ToolNode([other])).compile()
    kind = agent_from_graph(graph_with(tools=ToolNode([search]), researcher=inner), "clerk")
    kind.mode = Mode.AUTO
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking("search", query="tea"))
        result = await run.result()
        events = await run.history()
    answers = sorted(one["content"] for one in result["messages"] if one["type"] == "tool")
    assert answers == ["file tea", "found tea"]
    names = {event.payload["tool_id"] for event in events if event.event_type == "tool.completed"}
    assert names == {"langchain:search", "langchain:researcher.tools.search"}


async def test_tools_of_a_registry_are_called_by_the_executor_of_the_node() -> None:
    @tool(side_effects=SideEffectClass.PURE)
    def price(item: str) -> dict[str, int]:
        """What an item costs."""
        return {"cents": len(item)}

    registry = ToolRegistry()
    registry.register(price)
    (shown,) = registry.to_langchain_tools()

    async def ask(state: State) -> Any:
        assert await shown.ainvoke({"item": "oil"}) == {"cents": 3}
        return {}

    graph = graph_with(tools=ToolNode([shown]), ask=ask)
    kind = agent_from_graph(graph, "clerk")
    kind.mode, kind.tools = Mode.AUTO, tuple(registry)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking("price", item="bread"))
        result = await run.result()
        events = await run.history()
    assert [one["content"] for one in result["messages"][1:]] == ['{"cents": 5}']
    ids = [event.payload["tool_id"] for event in events if event.event_type == "tool.completed"]
    assert ids == ["user:price"] * 2
    with pytest.raises(ToolError, match="by its executor"):
        await shown.ainvoke({"item": "oil"})


async def test_a_tool_of_a_registry_that_the_agent_does_not_have_is_not_called() -> None:
    registry = ToolRegistry()
    registry.register(search_files)
    (shown,) = registry.to_langchain_tools()
    said = []

    async def ask(state: State) -> Any:
        with pytest.raises(ToolError) as caught:
            await shown.ainvoke({"query": "oil"})
        said.append(caught.value.message)
        return {}

    for named in ((), (search,)):
        kind = agent_from_graph(graph_with(ask=ask), "clerk")
        kind.tools = named
        async with Rehearsal(kind) as rehearsal:
            await (await rehearsal.start({"messages": []})).result()
    assert said == [
        "The node ask calls the tool search_files, and its agent names no tools.",
        "clerk has no tool 'search_files'.",
    ]


async def test_a_graph_may_be_built_from_the_agent_s_tools() -> None:
    class Clerk(BaseGraphicAgent):
        agent_type = "clerk"
        tools = (search,)
        mode = Mode.AUTO

        def get_state_class(self) -> type[Any]:
            return State

        def _build_graph(self) -> Any:
            assert self.toolbox is not None
            return graph_with(tools=ToolNode([ToolConverter.to_langchain(self.toolbox.get("search"))]))

    async with Rehearsal(Clerk) as rehearsal:
        run = await rehearsal.start(asking("search", query="tea"))
        assert (await run.result())["messages"][-1]["content"] == "found tea"
        assert "tool.completed" in [event.event_type for event in await run.history()]
