"""Tools of LangChain of every kind, and calls of them by a `ToolNode`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

made: list[str] = []


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    user: str
    seen: str


class TooManyError(Exception):
    """An error that only the module of the tools knows; its text is not its argument."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count

    def __str__(self) -> str:
        return f"there are {self.count} of them"


class Order(BaseModel):
    """Its own validation, which no JSON Schema has."""

    number: int = Field(gt=0)
    item: str = "tea"

    @field_validator("item")
    @classmethod
    def known(cls, item: str) -> str:
        """Only two things are sold."""
        if item not in ("tea", "oil"):
            raise ValueError(f"{item} is not sold here")
        return item.upper()


@langchain_tool
def double(number: int) -> int:
    """Twice a number."""
    made.append(f"double {number}")
    return 2 * number


@langchain_tool
async def look_up(number: int) -> dict[str, Any]:
    """Look something up."""
    made.append(f"look_up {number}")
    return {"number": number, "name": "Zoë"}


@langchain_tool(args_schema=Order)
def order(number: int, item: str) -> str:
    """Order something."""
    made.append(f"order {number}")
    return f"{number} {item}"


@langchain_tool
def fail(how: str) -> str:
    """Fail in one of several ways."""
    made.append(f"fail {how}")
    kinds: dict[str, Exception] = {
        "value": ValueError("bad value"),
        "key": KeyError("k"),
        "tool": ToolException("no such shop"),
        "many": TooManyError(3),
        "system": FileNotFoundError(2, "No such file", "/x"),
        "odd": type("OddError", (Exception,), {})("of no module"),
    }
    raise kinds[how]


@langchain_tool(response_format="content_and_artifact")
def report(topic: str) -> tuple[str, dict[str, Any]]:
    """Report about a topic."""
    return f"about {topic}", {"pages": 3, "topic": topic}


@langchain_tool
def blocks() -> list[dict[str, Any]]:
    """Blocks of content."""
    return [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


@langchain_tool
def who(state: Annotated[dict[str, Any], InjectedState], user: Annotated[str, InjectedState("user")]) -> str:
    """Tell who asks."""
    return f"{user} after {len(state['messages'])}"


@langchain_tool
def remember(key: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Remember a key."""
    before = store.get(("keys",), key)
    store.put(("keys",), key, {"n": 1})
    return f"{key} {before and before.value}"


@langchain_tool
def identified(text: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Tell the id of the call."""
    return f"{text} {call_id}"


@langchain_tool
def runtime_of(text: str, runtime: ToolRuntime) -> str:
    """Tell what the runtime has."""
    names = sorted(one.name for one in runtime.tools)
    return f"{text} {runtime.tool_call_id} {runtime.state['user']} {names} {runtime.store is not None}"


@langchain_tool
def command(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Update the state."""
    return Command(update={"seen": text, "messages": [ToolMessage(f"saw {text}", tool_call_id=call_id)]})


@langchain_tool
def jump(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Go somewhere else."""
    return Command(goto="last", update={"messages": [ToolMessage("jumped", tool_call_id=call_id)]})


@langchain_tool
def wrong_command(text: str) -> Command[Any]:
    """Update the state without an answer."""
    return Command(update={"messages": [ToolMessage(text, tool_call_id="another")]})


@langchain_tool
def several(call_id: Annotated[str, InjectedToolCallId]) -> list[Any]:
    """Update the state, and answer."""
    return [Command(update={"seen": "several"}), ToolMessage("done", tool_call_id=call_id)]


@langchain_tool
def own_message(call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
    """A message of its own."""
    return ToolMessage("mine", tool_call_id=call_id, name="other", artifact=[1, 2], status="error")


def handling(tool: BaseTool, **flags: Any) -> BaseTool:
    """A copy of a tool that handles its errors itself."""
    return tool.model_copy(update=flags)


def on_value(error: ValueError) -> str:
    """Handle one kind of errors."""
    return f"handled {error!r}"


def on_many(error: TooManyError) -> str:
    """Handle an error by its attributes."""
    return f"{error.count} too many"


def every(error: Exception) -> str:
    """Handle all errors, and say what they are."""
    return f"{type(error).__name__}: {error}"


async def shout(request: Any, execute: Callable[[Any], Any]) -> Any:
    """Change the arguments, then the answer."""
    call = {**request.tool_call, "args": {"number": request.tool_call["args"]["number"] + 1}}
    message = await execute(request.override(tool_call=call))
    message.content = message.content + "!"
    return message


async def again(request: Any, execute: Callable[[Any], Any]) -> Any:
    """Try twice."""
    try:
        return await execute(request)
    except ValueError:
        return await execute(request)


def sync_shout(request: Any, execute: Callable[[Any], Any]) -> Any:
    """As `shout`, by a function that waits."""
    message = execute(request)
    message.content = f"{message.content}?"
    return message


async def other_tool(request: Any, execute: Callable[[Any], Any]) -> Any:
    """Answer without the tool."""
    return ToolMessage("cached", name=request.tool_call["name"], tool_call_id=request.tool_call["id"])


class Case(NamedTuple):
    """Tools, the calls of one message, and the settings of the node."""

    tools: Sequence[Any]
    calls: Sequence[tuple[str, dict[str, Any]]]
    options: dict[str, Any] = {}  # noqa: RUF012
    store: bool = False


def plain(number: int = 7) -> str:
    """A plain function."""
    return f"plain {number}"


CASES: dict[str, Case] = {
    "a sync tool": Case([double], [("double", {"number": 4})]),
    "an async tool with a dict": Case([look_up], [("look_up", {"number": 4})]),
    "a plain function": Case([plain], [("plain", {})]),
    "several calls": Case(
        [double, look_up], [("double", {"number": n}) for n in (1, 2)] + [("look_up", {"number": 3})]
    ),
    "equal calls": Case([double], [("double", {"number": 1}), ("double", {"number": 1})]),
    "an unknown tool": Case([double], [("triple", {"number": 1}), ("double", {"number": 2})]),
    "a converted argument": Case([double], [("double", {"number": "4"})]),
    "an additional argument": Case([double], [("double", {"number": 4, "more": 1})]),
    "a wrong argument": Case([double], [("double", {"number": "four"})]),
    "a missing argument": Case([double], [("double", {})]),
    "a wrong argument, all errors": Case(
        [double], [("double", {"number": "x"})], {"handle_tool_errors": True}
    ),
    "a wrong argument, text": Case([double], [("double", {"number": "x"})], {"handle_tool_errors": "Sorry"}),
    "a wrong argument, no errors": Case(
        [double], [("double", {"number": "x"})], {"handle_tool_errors": False}
    ),
    "a validator": Case([order], [("order", {"number": 1, "item": "oil"})]),
    "a validator refuses": Case([order], [("order", {"number": 1, "item": "gold"})]),
    "a bound refuses": Case([order], [("order", {"number": 0})]),
    "a tool handles validation": Case(
        [handling(order, handle_validation_error=True)], [("order", {"number": 0})]
    ),
    "a tool handles validation by text": Case(
        [handling(order, handle_validation_error="No")], [("order", {})]
    ),
    "a tool handles validation by function": Case(
        [handling(order, handle_validation_error=lambda error: f"{len(error.errors())} faults")],
        [("order", {})],
    ),
    "an artifact": Case([report], [("report", {"topic": "bread"})]),
    "blocks": Case([blocks], [("blocks", {})]),
    "state": Case([who], [("who", {})]),
    "state that a model forges": Case([who], [("who", {"user": "root", "state": {"messages": []}})]),
    "a store": Case([remember], [("remember", {"key": "a"})], store=True),
    "no store": Case([remember], [("remember", {"key": "a"})]),
    "the id of the call": Case([identified], [("identified", {"text": "t"})]),
    "the id of the call, forged": Case([identified], [("identified", {"text": "t", "call_id": "x"})]),
    "the runtime": Case([runtime_of, double], [("runtime_of", {"text": "t"})], store=True),
    "a command": Case([command], [("command", {"text": "sun"})]),
    "a command and a message": Case(
        [command, double], [("double", {"number": 1}), ("command", {"text": "sun"})]
    ),
    "a command that goes": Case([jump], [("jump", {})]),
    "a command without an answer": Case(
        [wrong_command], [("wrong_command", {"text": "sun"})], {"handle_tool_errors": True}
    ),
    "several results": Case([several], [("several", {})]),
    "a message of its own": Case([own_message], [("own_message", {})]),
    "another key": Case([double], [("double", {"number": 1})], {"messages_key": "messages"}),
    **{
        f"the error {how}, handled by {name}": Case([fail], [("fail", {"how": how})], options)
        for how in ("value", "key", "tool", "many", "system", "odd")
        for name, options in {
            "default": {},
            "True": {"handle_tool_errors": True},
            "False": {"handle_tool_errors": False},
            "text": {"handle_tool_errors": "Sorry"},
            "a function for some": {"handle_tool_errors": on_value},
            "a function for all": {"handle_tool_errors": every},
            "a function that looks": {"handle_tool_errors": on_many},
            "a class": {"handle_tool_errors": TooManyError},
            "classes": {"handle_tool_errors": (KeyError, OSError)},
        }.items()
    },
    "a tool handles its error": Case([handling(fail, handle_tool_error=True)], [("fail", {"how": "tool"})]),
    "a tool handles its error by text": Case(
        [handling(fail, handle_tool_error="No")], [("fail", {"how": "tool"})]
    ),
    "an error beside a result": Case(
        [fail, double], [("fail", {"how": "value"}), ("double", {"number": 1})], {"handle_tool_errors": True}
    ),
    "a wrapper": Case([double], [("double", {"number": 1})], {"awrap_tool_call": shout}),
    "a wrapper that tries again": Case(
        [fail], [("fail", {"how": "value"})], {"awrap_tool_call": again, "handle_tool_errors": False}
    ),
    "a wrapper that tries again, handled": Case(
        [fail], [("fail", {"how": "value"})], {"awrap_tool_call": again, "handle_tool_errors": on_value}
    ),
    "a wrapper without a call": Case([double], [("double", {"number": 1})], {"awrap_tool_call": other_tool}),
    "a sync wrapper": Case(
        [double], [("double", {"number": 1}), ("double", {"number": 2})], {"wrap_tool_call": sync_shout}
    ),
}


def graph_of(case: Case) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph whose node `tools` has the calls of its first state."""
    graph = StateGraph(State)
    graph.add_node("tools", ToolNode(case.tools, **case.options), destinations=("last",))
    graph.add_node("last", lambda state: {"seen": "the last"})
    graph.add_edge(START, "tools")
    graph.add_edge("last", END)
    return graph.compile(store=InMemoryStore() if case.store else None)


def first_state(case: Case) -> dict[str, Any]:
    """A state with one message that asks for the calls."""
    calls = [
        {"name": name, "args": args, "id": f"c{n}", "type": "tool_call"}
        for n, (name, args) in enumerate(case.calls)
    ]
    asked = {"role": "assistant", "content": "", "tool_calls": calls, "id": "m"}
    return {"messages": [asked], "user": "ada"}
