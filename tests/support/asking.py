"""A worker in a process of its own whose agent asks a model.

`python -m tests.support.asking URL HOME MODEL_URL`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.agent.accounts import Treasurer
from noesium_stream.llm import JournaledLLM, OpenAILLM
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.events import catalogue


class Question(TypedDict, total=False):
    question: str
    answer: str


async def main(url: str, home: Path, model_url: str) -> None:
    client = OpenAILLM("openai:gpt-4o-mini", base_url=model_url, api_key="k", max_tokens=100)
    llm = JournaledLLM(client)

    async def ask(state: Question) -> Question:
        return {"answer": await llm.complete(state["question"])}

    graph = StateGraph(Question).add_node("ask", ask).add_edge(START, "ask")
    log = await open_log(url, catalogue=catalogue())
    async with Worker(log, [agent_from_graph(graph, "asker"), Treasurer], home=home) as worker:
        print("at work", flush=True)
        await worker.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
