"""Calls of models: journaled, beside the same calls of LangChain's client, many at the same time."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.llm import JournaledLLM, OpenAILLM
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.bench.harness import Figure, Side, interleave

DELAY_S = 0.02
"""What the provider takes for an answer."""

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class LlmSettings:
    """Sizes; the defaults are those of a full run. `folder` is where logs and workers keep their files."""

    folder: Path
    repetitions: int = 5
    calls: int = 100


class _Asked(TypedDict, total=False):
    calls: int
    seconds: float


@contextmanager
def _provider() -> Iterator[str]:
    """The address of a provider in a process of its own."""
    command = [sys.executable, "-m", "tests.support.model_server", str(DELAY_S)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()
            process.terminate()


def _agent(client: OpenAILLM) -> Any:
    llm = JournaledLLM(client)

    async def ask(state: _Asked) -> dict[str, Any]:
        begun = perf_counter()
        await asyncio.gather(*(llm.complete(f"question {number}") for number in range(state["calls"])))
        return {"seconds": perf_counter() - begun}

    graph = StateGraph(_Asked)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return agent_from_graph(graph, "asker")


async def _bare(client: OpenAILLM, calls: int) -> float:
    chat, begun = await client._chats.get(), perf_counter()
    await asyncio.gather(*(chat.ainvoke(f"question {number}") for number in range(calls)))
    return perf_counter() - begun


async def measure_llm(settings: LlmSettings) -> list[Figure]:
    """Milliseconds of a round of calls at the same time, in one node, on SQLite."""
    log = await open_log(f"sqlite:///{settings.folder / f'{secrets.token_hex(4)}.db'}")
    try:
        with _provider() as address:
            client = OpenAILLM("openai:gpt-4o-mini", base_url=address, api_key="k")
            home = settings.folder / secrets.token_hex(4)
            async with Worker(log, [_agent(client)], home=home), Client(log) as starter:

                async def journaled() -> float:
                    run = await starter.start("asker", {"calls": settings.calls})
                    return float((await run.result(timeout=600))["seconds"]) * 1e3

                async def bare() -> float:
                    return await _bare(client, settings.calls) * 1e3

                await journaled()  # connections are open then, on both sides the same
                values = await interleave({"ours": journaled, "theirs": bare}, settings.repetitions)
    finally:
        await log.close()
    name = f"{settings.calls} calls of a model at the same time, of {DELAY_S * 1e3:g} ms each"
    ours, theirs = Side("JournaledLLM", values["ours"]), Side("LangChain's client", values["theirs"])
    return [Figure("llm", name, "ms", ours, theirs, 1.1, at_least=False)]


OF_LLM: dict[str, Callable[[LlmSettings], Awaitable[list[Figure]]]] = {"calls": measure_llm}
