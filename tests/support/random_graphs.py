"""Random graphs for property tests: layers of nodes with forks, joins, fan-outs, subgraphs, calls and loops.

A graph is described by plain numbers (a `Plan`), so that it can be drawn by Hypothesis and built anew in
another process. Its nodes compute from the state alone; what they do outside is counted in `done`.
"""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

from hypothesis import strategies as st
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_node

KINDS: Final = ("plain", "sync", "effect", "gather", "event", "subgraph", "send", "command", "pure")

done: Counter[str] = Counter()
"""How often each effect was done outside."""


class Noted(DomainEvent, event_type="random.noted"):
    text: str


class State(TypedDict, total=False):
    seed: int
    turn: int
    trace: Annotated[list[Any], operator.add]
    total: Annotated[int, operator.add]


@dataclass(frozen=True)
class Plan:
    """Layers of node kinds; each layer starts when the one before it is done; `turns` times around."""

    layers: tuple[tuple[str, ...], ...]
    turns: int


plans = st.builds(
    Plan,
    st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4).map(
        tuple
    ),
    st.integers(1, 3),
)


def build(plan: Plan) -> StateGraph[Any, Any, Any, Any]:
    """The graph of a plan, not compiled."""
    graph = StateGraph(State)
    before: list[str] = []
    for number, kinds in enumerate(plan.layers):
        gate = f"gate{number}"
        graph.add_node(gate, _plain(gate))
        if before:
            graph.add_edge(before, gate)
        else:
            graph.add_edge(START, gate)
        before = [_add(graph, f"n{number}_{index}", kind, gate) for index, kind in enumerate(kinds)]
    graph.add_node("turn", lambda state: {"turn": state.get("turn", 0) + 1})
    graph.add_edge(before, "turn")
    graph.add_conditional_edges(
        "turn", lambda state: "gate0" if state["turn"] < plan.turns else END, ["gate0", END]
    )
    return graph


def _add(graph: StateGraph[Any, Any, Any, Any], name: str, kind: str, gate: str) -> str:
    """Add a node behind its gate; return the name that the next layer waits for."""
    if kind == "send":
        graph.add_node(f"{name}_each", lambda state: {"trace": [f"{name} each {state['seed']}"]})
        graph.add_node(f"{name}_fan", _plain(f"{name}_fan"))
        graph.add_edge(gate, f"{name}_fan")
        graph.add_conditional_edges(
            f"{name}_fan",
            lambda state: [Send(f"{name}_each", {"seed": state["seed"] + i}) for i in range(3)],
            [f"{name}_each"],
        )
        return f"{name}_fan"
    if kind == "command":
        graph.add_node(f"{name}_next", _plain(f"{name}_next"))
        graph.add_node(
            name,
            lambda state: Command(update={"trace": [name]}, goto=f"{name}_next"),
            destinations=(f"{name}_next",),
        )
        graph.add_edge(gate, name)
        return f"{name}_next"
    graph.add_node(name, _inner(name) if kind == "subgraph" else _BODIES[kind](name))
    graph.add_edge(gate, name)
    return name


def _inner(name: str) -> Any:
    inner = StateGraph(State)
    inner.add_node("first", _effect(f"{name} first"))
    inner.add_node("second", lambda state: {"trace": [f"{name} second {len(state['trace'])}"]})
    inner.add_edge(START, "first")
    inner.add_edge("first", "second")
    compiled = inner.compile()

    async def call(state: State) -> dict[str, Any]:
        result = await compiled.ainvoke({"seed": state["seed"], "trace": [], "total": 0})
        return {"trace": [result["trace"]], "total": result["total"]}

    return call


def _plain(name: str) -> Any:
    async def node(state: State) -> dict[str, Any]:
        return {"trace": [f"{name} after {len(state.get('trace', []))}"], "total": 1}

    return node


def _sync(name: str) -> Any:
    def node(state: State) -> dict[str, Any]:
        return {"trace": [name], "total": state["seed"]}

    return node


def _pure(name: str) -> Any:
    @kernel_node()
    async def node(state: State) -> dict[str, Any]:
        return {"trace": [name], "total": 2}

    return node


def _effect(name: str) -> Any:
    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        result = await step.effect(name, _outside, name, effect_class=SideEffectClass.IDEMPOTENT)
        return {"trace": [result], "total": round(step.random() * 10)}

    return node


def _gather(name: str) -> Any:
    async def one(number: int) -> str:
        for _ in range(_pauses(number)):
            await asyncio.sleep(0)
        what = f"{name} {number}"
        got = await current_step().effect(what, _outside, what, effect_class=SideEffectClass.IDEMPOTENT)
        return str(got)

    async def node(state: State) -> dict[str, Any]:
        return {"trace": await asyncio.gather(*(one(number) for number in range(3)))}

    return node


def _event(name: str) -> Any:
    def node(state: State) -> dict[str, Any]:
        return {"trace": [name], "_pending_events": [Noted(text=name), Noted(text=f"{name} again")]}

    return node


order: list[int] = [0, 1, 2]
"""How many turns of the loop each child of a `gather` waits before it calls; tests change it."""


def _pauses(number: int) -> int:
    return order[number]


async def _outside(what: str, idempotency_key: str) -> str:
    done[idempotency_key] += 1
    return what.upper()


_BODIES = {
    "plain": _plain,
    "sync": _sync,
    "pure": _pure,
    "effect": _effect,
    "gather": _gather,
    "event": _event,
}
