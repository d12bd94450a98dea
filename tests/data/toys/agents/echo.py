"""Says what it hears, in capitals by delegation; `fail` fails, `wait` waits for the signal `go`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypedDict

from langgraph.graph import START, StateGraph
from pydantic import BaseModel, Field

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.errors import ConfigError
from noesium_stream.kernel import current_step


class EchoOptions(BaseModel):
    loud: bool = Field(False, description="Answer in capitals.")
    times: int = Field(1, ge=1, description="How often to say it.")
    ending: Literal[".", "!"] = Field(".", description="What it ends with.")
    docs: Path | None = Field(None, description="A folder that has to exist.")
    names: list[str] = Field(default_factory=list, description="Whom to greet.")


class EchoState(TypedDict, total=False):
    question: str
    answer: str
    citations: list[str]
    sources: list[str]


class Echo(BaseGraphicAgent):
    agent_type = "echo"
    version = "1.2.0"
    Options = EchoOptions
    companions = ("agents.helper",)

    async def start(self) -> None:
        docs = self._options.docs
        if docs is not None and not docs.is_dir():
            raise ConfigError(f"There is no folder {docs}.", hint="Give another one with --docs DIR.")

    def get_state_class(self) -> type[Any]:
        return EchoState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(EchoState)
        graph.add_node("listen", self.listen)
        graph.add_node("say", self.say)
        graph.add_edge(START, "listen")
        graph.add_edge("listen", "say")
        return graph

    async def listen(self, state: EchoState) -> dict[str, Any]:
        if state["question"] == "wait":
            return {"question": str(await current_step().signal("go"))}
        return {}

    async def say(self, state: EchoState) -> dict[str, Any]:
        if state["question"] == "fail":
            raise ValueError("told to fail")
        options = self._options
        text = state["question"]
        if options.loud:
            text = (await current_step().invoke("text.upper", {"text": text}))["text"]
        words = [*[text] * options.times, *options.names]
        return {
            "answer": " ".join(words) + options.ending,
            "citations": [text],
            "sources": ["[1] the question"],
        }


AGENT = Echo
