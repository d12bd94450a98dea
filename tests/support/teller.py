"""An agent that answers in pieces: the words of its input. It can stop in the middle until a signal comes.

`python -m tests.support.teller URL HOME` works for it, and prints a line once it is ready.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.patience import lose_no_piece

_OBJECT = {"type": "object"}


class Told(TypedDict, total=False):
    words: list[Any]
    halt: int
    text: str


async def tell(state: Told) -> Told:
    """Write each word; before the word `halt`, wait for the signal `go`."""
    step = current_step()
    for number, word in enumerate(state["words"]):
        if number == state.get("halt"):
            await step.signal("go")
        await step.write(word)
    return {"text": "".join(map(str, state["words"]))}


class Teller(BaseGraphicAgent):
    """Offers `text.tell`."""

    agent_type = "teller"
    capabilities = (Capability(id="text.tell", input_schema=_OBJECT, output_schema=_OBJECT),)

    def get_state_class(self) -> type[Any]:
        return Told

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(Told)
        graph.add_node("tell", tell)
        graph.add_edge(START, "tell")
        graph.add_edge("tell", END)
        return graph

    def result(self, state: dict[str, Any]) -> Any:
        return {"text": state["text"]}


class Relayed(TypedDict, total=False):
    words: list[Any]
    halt: int
    text: str


async def relay(state: Relayed) -> Relayed:
    """Have the words told, pass each piece on, and keep the answer."""
    step = current_step()
    asked = {name: state[name] for name in ("words", "halt") if name in state}
    answer = step.invoke_stream("text.tell", asked, version="^1")
    async for piece in answer:
        await step.write([piece.data, piece.restarted])
    return {"text": (await answer.result())["text"]}


class Relay(BaseGraphicAgent):
    """Answers in the pieces of another agent, each with whether it is a restart."""

    agent_type = "relay"

    def get_state_class(self) -> type[Any]:
        return Relayed

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(Relayed)
        graph.add_node("relay", relay)
        graph.add_edge(START, "relay")
        graph.add_edge("relay", END)
        return graph

    def result(self, state: dict[str, Any]) -> Any:
        return {"text": state["text"]}


async def _main(url: str, home: str) -> None:
    lose_no_piece()
    log = await open_log(url)
    async with Worker(log, [Teller], home=Path(home)) as worker:
        print("ready", flush=True)
        await worker.wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
