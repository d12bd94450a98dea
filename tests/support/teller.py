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


async def _main(url: str, home: str) -> None:
    log = await open_log(url)
    async with Worker(log, [Teller], home=Path(home)) as worker:
        print("ready", flush=True)
        await worker.wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
