"""A node that changes what it was given in place changes nothing that is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.event import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.kernel.modes import ModelParameters
from noesium_stream.llm import JournaledLLM
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, tool

GIVEN = {"items": [1, {"more": ["a"]}]}


class State(TypedDict, total=False):
    seen: list[Any]


class Embedding:
    """A model whose vector of a text is always the same."""

    model = "fake:vectors"
    parameters = ModelParameters("fake:vectors", "1", 0, 0)
    max_output_tokens = 1

    def price(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int | None:
        return 0

    async def generate(self, prompt: Any, **more: Any) -> dict[str, Any]:
        call = {"id": "1", "name": "look_up", "arguments": {"ids": [1]}}
        return {"text": "", "tool_calls": [call], "cost_nano_usd": 0}

    async def embed(self, texts: Any) -> dict[str, Any]:
        return {"vectors": [[1.0]], "cost_nano_usd": 0}


@tool(side_effects=SideEffectClass.PURE)
def look_up(number: int) -> dict[str, Any]:
    """Look it up."""
    return {"items": [number, {"more": ["a"]}]}


async def of_effect() -> list[Any]:
    found = await current_step().effect("read", lambda: GIVEN, effect_class=SideEffectClass.PURE)
    return [found["items"], found["items"][1]["more"]]


async def of_tool() -> list[Any]:
    found = await current_step().tool("look_up", number=1)
    return [found["items"], found["items"][1]["more"]]


async def of_model() -> list[Any]:
    llm = JournaledLLM(Embedding())
    answer = await llm.ask("why")
    return [answer.tool_calls[0].arguments["ids"], (await llm.embed(["why"]))[0]]


async def of_signal() -> list[Any]:
    step = current_step()
    return [await step.signal("go"), (await step.nth_signal("go", 0)).value]


async def of_person() -> list[Any]:
    return [(await current_step().interrupt("which?", schema={"type": "array"})).value]


def agent_taking(values: Callable[[], Awaitable[list[Any]]]) -> Any:
    """An agent whose node changes the values in place, fails, and is tried again."""

    entered: list[bool] = []

    async def take(state: State) -> State:
        found = await values()
        seen = deepcopy(found)
        for one in found:
            one.append("changed")
        if not entered:
            entered.append(True)
            raise ConnectionError("try again")
        return {"seen": seen}

    graph = StateGraph(State)
    graph.add_node(
        "take",
        take,
        retry_policy=RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=3, retry_on=Exception),
    )
    graph.add_edge(START, "take")

    class Taking(BaseGraphicAgent):
        agent_type = "taking"
        mode = Mode.AUTO
        tools = (look_up,)

        def get_state_class(self) -> type[Any]:
            return State

        def _build_graph(self) -> Any:
            return graph

    return Taking


def recorded(events: list[EventEnvelope]) -> str:
    return "\n".join(repr(event.payload) for event in events if not event.event_type.startswith("kernel."))


@pytest.mark.parametrize("values", [of_effect, of_tool, of_model, of_signal, of_person])
async def test_the_next_attempt_sees_what_is_recorded(values: Any) -> None:
    kind = agent_taking(values)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({})
        if values is of_signal:
            await run.signal("go", ["a"])
        if values is of_person:
            await run.wait_for("approval.requested")
            await run.answer(["a"])
        seen = (await run.result())["seen"]
        events = await run.history()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
    assert "changed" not in repr(seen)
    assert "changed" not in recorded(events)
    assert verdict.difference is None
