"""Which nodes are known to compute and nothing else, from their code alone."""

from __future__ import annotations

import importlib.util
import linecache
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph._internal._runnable import coerce_to_runnable

from noesium_stream.kernel import source
from noesium_stream.kernel.plain_code import only_computes

State = dict[str, Any]
LIMIT = 3
NAMES = ["a"]
abs_ = abs


def shown(node: Callable[..., Any]) -> bool:
    """What its code shows of a node, once LangGraph has taken it."""
    return only_computes(coerce_to_runnable(node, name="node", trace=False))


def adds(state: State) -> State:
    """A docstring."""
    return {"n": state["n"] + 1}


async def adds_later(state: State) -> State:
    return {"n": state["n"] + 1}


def decides(state: State) -> State | None:
    n: int = state.get("n", 0)
    if n > LIMIT and "done" not in state:
        return {"n": min(n, LIMIT), "words": [word[:2] for word in state["words"] if len(word) > 1]}
    if n < 0:
        return None
    first, second = state["pair"]
    return (
        {**state["more"], "text": f"{first}/{second:>3}", "sum": sum(x * 2 for x in state["xs"])}
        if n
        else None
    )


def sorts(state: State) -> State:
    return {
        "sorted": sorted(state["xs"], reverse=True),
        "is": isinstance(state["n"], int),
        "of": str(-state["n"]),
    }


class Owner:
    factor = 2

    def adds(self, state: State) -> State:
        return {"n": state["n"] + 1}

    def asks_itself(self, state: State) -> State:
        return {"n": state["n"] * self.factor}

    def __call__(self, state: State) -> State:
        return {"n": state["n"] + 1}


@pytest.mark.parametrize(
    "node", [adds, adds_later, decides, sorts, Owner().adds, lambda state: {"n": state["n"] + 1}]
)
def test_a_function_of_the_state_that_computes_is_known(node: Callable[..., Any]) -> None:
    assert shown(node)


def calls_a_function(state: State) -> State:
    return {"n": adds(state)}


def calls_what_the_state_holds(state: State) -> State:
    return {"n": state["f"](1)}


def calls_a_method(state: State) -> State:
    return {"n": state["client"].get("n")}


def calls_get_of_something_else(state: State) -> State:
    client = state["client"]
    return {"n": client.get("n")}


def calls_by_key(state: State) -> State:
    return {"n": sorted(state["xs"], key=state["f"])}


def prints(state: State) -> State:
    print(state)
    return {}


def reads_the_clock(state: State) -> State:
    return {"now": time.time()}


def opens(state: State) -> State:
    return {"text": open("x").read()}


def changes_the_state(state: State) -> State:
    state["n"] = 1
    return {}


def changes_in_place(state: State) -> State:
    xs = state["xs"]
    xs += [1]
    return {}


def changes_a_global(state: State) -> State:
    NAMES[0] = state["n"]
    return {}


def reads_a_list_of_the_module(state: State) -> State:
    return {"n": NAMES}


def rebinds_a_global(state: State) -> State:
    global LIMIT
    LIMIT = state["n"]
    return {}


def hides_a_builtin(state: State) -> State:
    len = state["f"]
    return {"n": len(1)}


def takes_the_state_for_another(state: State) -> State:
    state = state["other"]
    return {"n": state.get("n")}


async def awaits(state: State) -> State:
    return {"n": await state["later"]}


async def reads_a_stream(state: State) -> State:
    return {"xs": [x async for x in state["stream"]]}


def gives_what_it_was_given(state: State) -> Any:
    return state["runnable"]  # LangGraph would execute a runnable


def gives_a_list(state: State) -> Any:
    return [{"n": 1}]


def gives_parts(state: State) -> Any:
    yield {"n": 1}


def has_a_function(state: State) -> State:
    return {"f": lambda: state}


def takes_its_configuration(state: State, config: RunnableConfig) -> State:
    return {"n": 1}


def takes_more(state: State, *others: Any) -> State:
    return {"n": 1}


def loops(state: State) -> State:
    while state["n"]:
        pass
    return {}


def raises(state: State) -> State:
    raise state["error"]


def decorated(function: Callable[[State], State]) -> Callable[[State], State]:
    @wraps(function)
    def wrapper(state: State) -> State:
        return function(state)

    return wrapper


def closed_over(value: Any) -> Callable[[State], State]:
    def node(state: State) -> State:
        return {"n": value}

    return node


@pytest.mark.parametrize(
    "node",
    [
        *(calls_a_function, calls_what_the_state_holds, calls_a_method, calls_get_of_something_else),
        *(calls_by_key, prints, reads_the_clock, opens, changes_the_state, changes_in_place),
        *(changes_a_global, reads_a_list_of_the_module, rebinds_a_global, hides_a_builtin),
        *(takes_the_state_for_another, awaits, reads_a_stream, gives_what_it_was_given, gives_a_list),
        *(gives_parts, has_a_function, takes_its_configuration, takes_more, loops, raises),
        *(decorated(adds), closed_over(1), Owner().asks_itself, Owner(), len, eval("lambda state: {}")),
    ],
)
def test_what_may_reach_out_or_cannot_be_told_is_not(node: Callable[..., Any]) -> None:
    assert not shown(node)


def test_a_runnable_of_another_kind_shows_nothing() -> None:
    assert not only_computes(RunnableLambda(adds))


def test_a_file_that_was_changed_since_it_was_imported_shows_nothing(tmp_path: Path) -> None:
    file = tmp_path / "changed_node.py"
    before = "import os\n\ndef node(state):\n    return {'n': os.getpid()}\n"
    file.write_text(before, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("changed_node", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file.write_text(before.replace("os.getpid()", "state['n']"), encoding="utf-8")
    linecache.checkcache(str(file))
    assert source.tree_of(module.node.__code__) is not None, "it looks the same from outside"
    assert not shown(module.node)
