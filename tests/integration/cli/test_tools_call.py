"""`noesium tools call`: one call of an agent's tool within what the agent may do, between real processes."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef
from noesium_stream.log import open_log
from noesium_stream.tool import AtomicTool, ToolSource
from noesium_stream.tool.definitions.copy import DefinitionsCopy
from noesium_stream.tool.definitions.registration import ToolRegistration
from tests.support.command import Folder

DESK = '''
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import AtomicTool, ToolSource, tool


class State(TypedDict, total=False):
    text: str


@tool(side_effects=SideEffectClass.PURE)
def price(item: str, pieces: int = 1) -> dict:
    """The price of an item."""
    return {"item": item, "cents": 3 * pieces}


@tool(side_effects=SideEffectClass.EXTERNAL)
def order(item: str) -> str:
    """Order an item."""
    with Path("orders").open("a") as file:
        file.write(item)
    return f"ordered {item}"


@tool(side_effects=SideEffectClass.PURE, permissions=("fs:read:{path}",))
def read(path: str) -> str:
    """Read a file."""
    return path


def found(arguments, context):
    return "found"


FIND = AtomicTool("find", "Find somebody", {"type": "object"}, source=ToolSource.MCP, toolkit_name="crm",
                  side_effect_class=SideEffectClass.PURE, function=found)
LOGIN = AtomicTool("login", "Log in", {"type": "object", "properties": {"key": {"type": "string",
                   "writeOnly": True}}}, function=found)
graph = StateGraph(State)
graph.add_node("end", lambda state: {"text": ""})
graph.add_edge(START, "end")
AGENT = agent_from_graph(graph, "desk")
AGENT.tools = (price, order, read, FIND, LOGIN)
AGENT.permissions = ("fs:read:reports/**",)
'''

CLERK = '''
from typing import Annotated

from langchain_core.tools import InjectedToolCallId, tool as langchain_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import interrupt

from noesium_stream.agent import agent_from_graph
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import tool


@tool(side_effects=SideEffectClass.PURE, permissions=("fs:read:{path}",))
@langchain_tool
def read(path: str, call: Annotated[str, InjectedToolCallId]) -> str:
    """Read a file."""
    return f"{path} {bool(call)}"


@langchain_tool
def last(state: Annotated[dict, InjectedState]) -> str:
    """The last message."""
    return state["messages"][-1].text


@tool(side_effects=SideEffectClass.PURE)
@langchain_tool
def ask(question: str) -> str:
    """Ask a person."""
    return interrupt(question)


graph = StateGraph(MessagesState)
graph.add_node("tools", ToolNode([read, last, ask]))
graph.add_edge(START, "tools")
AGENT = agent_from_graph(graph, "clerk")
AGENT.permissions = ("fs:read:reports/**",)
'''

TELLER = '''
from desk import price

from noesium_stream import BaseGraphicAgent, capability, current_step


class Teller(BaseGraphicAgent):
    agent_type = "teller"
    tools = (price,)

    @capability("teller.tell")
    async def tell(self, item: str) -> int:
        """Tell a price."""
        return (await current_step().tool("price", item=item))["cents"]


AGENT = Teller
'''


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "desk.py").write_text(DESK)
    (tmp_path / "clerk.py").write_text(CLERK)
    (tmp_path / "teller.py").write_text(TELLER)
    return Folder(tmp_path, NOESIUM_HOME=str(tmp_path / "home"))


def call(folder: Folder, *args: str, code: int = 0, agent: str = "desk") -> Any:
    done = folder.run("tools", "call", *args, "--agent", agent)
    assert done.returncode == code, done
    return done


def events(folder: Folder) -> list[dict[str, Any]]:
    """The events about tools of the newest run."""
    lines = folder.ok("events", folder.json("runs", "--json")[0]["run_id"], "--json").splitlines()
    return [one for one in map(json.loads, lines) if one["event_type"].startswith("tool.")]


def test_standard_output_is_the_result_and_the_call_is_on_the_log(folder: Folder) -> None:
    done = call(folder, "price", "item=3", "pieces=2")
    assert json.loads(done.stdout) == {"item": "3", "cents": 6}
    assert [event["event_type"] for event in events(folder)] == ["tool.invoked", "tool.completed"]
    answer = json.loads(call(folder, "price", "--input", '{"item": "tea"}', "--json").stdout)["answer"]
    assert answer == {"item": "tea", "cents": 3}
    assert "no such tools" in folder.run("tools", "list").stderr


def test_a_tool_of_an_agent_whose_graph_is_made_of_its_capabilities_is_called(folder: Folder) -> None:
    assert json.loads(call(folder, "price", "item=tea", agent="teller").stdout) == {"item": "tea", "cents": 3}


def test_the_call_may_do_what_the_agent_may(folder: Folder) -> None:
    assert "reports/a" in call(folder, "read", "path=reports/a").stdout
    refused = call(folder, "read", "path=secret", code=1)
    assert not refused.stdout
    assert "desk is not granted" in refused.stderr
    assert events(folder)[0]["payload"]["kind"] == "permission"
    assert call(folder, "read", "path=reports/a", "--permission", "fs:read:reports/b", code=1).stdout == ""
    assert call(folder, "order", "item=tea", "--mode", "ask", code=1).stdout == ""


def test_a_tool_of_a_tool_node_is_called_and_judged_like_those_that_the_agent_names(folder: Folder) -> None:
    assert json.loads(call(folder, "read", "path=reports/3", agent="clerk").stdout) == "reports/3 True"
    assert [event["event_type"] for event in events(folder)] == ["tool.invoked", "tool.completed"]
    refused = call(folder, "read", "path=secret", agent="clerk", code=1)
    assert not refused.stdout
    assert "clerk is not granted" in refused.stderr
    asked = call(folder, "ask", "question=Sure?", agent="clerk", code=1)
    assert "only in a ToolNode it waits for the answer" in asked.stderr


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("last", "The graph of clerk gives last its state"),
        ("reed", "clerk has no tool 'reed'.\n  Did you mean 'read'?"),
    ],
)
def test_a_tool_that_needs_its_graph_and_one_that_is_in_none_are_refused_before_anything_is_on_the_log(
    folder: Folder, tool: str, says: str
) -> None:
    assert says in call(folder, tool, agent="clerk", code=2).stderr
    assert not (folder.path / "home").exists()


def test_a_policy_speaks_of_the_agent_and_not_of_the_caller(folder: Folder) -> None:
    (folder.path / "policy.toml").write_text(
        '[[allow]]\nwho = ["*"]\nmay = ["*"]\n[agents.desk]\nnever = [{tool = "price"}]\n'
    )
    folder.env["NOESIUM_POLICY"] = str(folder.path / "policy.toml")
    assert "A rule of the policy refuses price" in call(folder, "price", "item=tea", code=1).stderr


def test_taint_judges_the_call_by_another_policy(folder: Folder) -> None:
    call(folder, "price", "item=tea")
    run_id = folder.json("runs", "--json")[0]["run_id"]
    (folder.path / "policy.toml").write_text('[agents.desk-call]\nnever = [{tool = "price"}]\n')
    assert folder.json("taint", run_id, "--json")["calls"][0]["verdict"] is None
    done = folder.run("taint", run_id, "--policy", "policy.toml")
    assert done.returncode == 1, done
    assert "A rule of the policy refuses price" in done.stdout


def test_it_asks_and_goes_on_in_another_process(folder: Folder) -> None:
    with folder.running("tools", "call", "order", "item=tea", "--agent", "desk") as first:
        said = first.wait_for_error_line("noesium approve")
        first.signal(signal.SIGINT)
        assert first.wait() == 130
    again = next(line for line in first.err if "--resume" in line).partition("noesium ")[2].split()
    with folder.running(*again) as second:
        second.wait_for_error_line("run ")
        folder.ok(*said.split()[1:])
        assert second.wait() == 0
    assert "ordered tea" in "".join(second.out)
    assert (folder.path / "orders").read_text() == "tea"


def test_a_definition_that_nobody_has_accepted_is_not_called(folder: Folder) -> None:
    async def register(*tools: AtomicTool) -> None:
        log = await open_log(f"sqlite:///{folder.path / 'log.db'}")
        await log.ensure_topics([log.topology.spec(log.topology.registry)])
        copy = DefinitionsCopy(log, clock=SystemClock())
        registry = CapabilityRegistry(log, clock=SystemClock())
        await ToolRegistration(log, AgentRef("desk", "desk"), SystemClock(), copy, registry).register(tools)
        await log.close()

    other = AtomicTool("find", "Find them", {"type": "object"}, source=ToolSource.MCP, toolkit_name="crm")
    asyncio.run(register(replace(other, description="Find all of them")))
    log = f"sqlite:///{folder.path / 'log.db'}"
    assert "noesium tools diff find" in call(folder, "find", "--log", log, code=1).stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("prize",), "desk has no tool 'prize'"),
        (("price", "tea"), "write KEY=VALUE"),
        (("price", "item=a", "item=b"), "given twice"),
        (("login", "key=abc"), "is secret"),
        ((), "either the NAME"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_on_the_log(
    folder: Folder, args: tuple[str, ...], says: str
) -> None:
    assert says in call(folder, *args, code=2).stderr
    assert not (folder.path / "home").exists()
