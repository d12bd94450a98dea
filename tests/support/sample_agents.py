"""Small agents for tests: a caller that delegates, and a provider that counts how often it worked."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Annotated, Any, ClassVar, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.kernel import current_step, kernel_node

OBJECT = {"type": "object"}


class NoteTaken(DomainEvent, event_type="note.taken"):
    text: str


class EchoState(TypedDict, total=False):
    text: str
    reply: str


class Echo(BaseGraphicAgent):
    """Offers `text.echo`; fails on the text `fail`."""

    agent_type = "echo"
    capabilities = (Capability(id="text.echo", input_schema=OBJECT, output_schema=OBJECT),)
    bodies: ClassVar[Counter[str]] = Counter()

    def get_state_class(self) -> type[Any]:
        return EchoState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(EchoState)
        graph.add_node("reply", self.reply)
        graph.add_edge(START, "reply")
        graph.add_edge("reply", END)
        return graph

    async def reply(self, state: EchoState) -> dict[str, Any]:
        self.bodies[f"echo {state['text']}"] += 1
        if state["text"] == "fail":
            raise ValueError("told to fail")
        return {"reply": state["text"].upper()}

    def result(self, state: dict[str, Any]) -> Any:
        return {"reply": state["reply"]}


class AskState(TypedDict, total=False):
    words: list[str]
    replies: Annotated[list[str], operator.add]
    effect: str


class Asker(BaseGraphicAgent):
    """Echoes each word through delegation, then causes one effect."""

    agent_type = "asker"
    events = (NoteTaken,)
    companions = ("tests.support.sample_agents:Echo",)
    bodies: ClassVar[Counter[str]] = Counter()

    def get_state_class(self) -> type[Any]:
        return AskState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(AskState)
        graph.add_node("plan", self.plan)
        graph.add_node("ask", self.ask)
        graph.add_node("close", self.close)
        graph.add_edge(START, "plan")
        graph.add_edge("plan", "ask")
        graph.add_edge("ask", "close")
        graph.add_edge("close", END)
        return graph

    def plan(self, state: AskState) -> dict[str, Any]:
        self.bodies["plan"] += 1
        return {"_pending_events": [NoteTaken(text="planned")]}

    async def ask(self, state: AskState) -> dict[str, Any]:
        self.bodies["ask"] += 1
        step = current_step()
        replies = [
            (await step.invoke("text.echo", {"text": word}, version="^1"))["reply"] for word in state["words"]
        ]
        return {"replies": replies}

    @kernel_node(deterministic=False, entropy_sources=["outside"])
    async def close(self, state: AskState) -> dict[str, Any]:
        self.bodies["close"] += 1
        return {
            "effect": await current_step().effect(
                "outside", self.outside, effect_class=SideEffectClass.IDEMPOTENT
            )
        }

    async def outside(self) -> str:
        self.bodies["outside"] += 1
        return "done"
