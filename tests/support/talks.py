"""An agent that talks for a long time, in short segments: each turn takes a signal and calls out."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Annotated, Any, ClassVar, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.memory import EphemeralMemory


class Talk(TypedDict, total=False):
    heard: int
    text: str
    answers: Annotated[list[str], operator.add]


class Talker(BaseGraphicAgent):
    """Answers each message with its number; ends at `bye`."""

    agent_type = "talker"
    max_supersteps = 1_000_000
    segment_steps: ClassVar[int | None] = 4
    called: ClassVar[Counter[str]] = Counter()

    def get_state_class(self) -> type[Talk]:
        return Talk

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        return {"heard": 0, "text": "", "answers": []}

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Talk).add_node("listen", self.listen).add_node("answer", self.answer)
        graph.add_edge(START, "listen").add_edge("listen", "answer")
        return graph.add_conditional_edges(
            "answer", lambda state: END if state["text"] == "bye" else "listen"
        )

    async def listen(self, state: Talk) -> dict[str, Any]:
        heard = await current_step().nth_signal("message", state["heard"])
        return {"heard": state["heard"] + 1, "text": heard.value}

    async def answer(self, state: Talk) -> dict[str, Any]:
        step, notes = current_step(), EphemeralMemory()
        count = (notes.get("count") or 0) + 1
        notes.set("count", count)
        step.set_attributes(turns=count)
        text = f"{count}: {state['text']}"
        said = await step.effect("say", self.say, text, effect_class=SideEffectClass.IDEMPOTENT)
        return {"answers": [said]}

    def say(self, text: str) -> str:
        self.called[text] += 1
        return text.upper()

    def result(self, state: dict[str, Any]) -> Any:
        return {"answers": state["answers"]}
