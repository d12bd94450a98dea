"""A program with OpenTelemetry's SDK that does a little of all, and prints what was measured as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import langchain.chat_models
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import current_step
from noesium_stream.llm.langchain import LangChainLLM
from noesium_stream.log import EventLog, open_log
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.rebuild import rebuild
from noesium_stream.worker import Worker

OBJECT = {"type": "object"}
NUMBERS = ("value", "count", "sum")
attempts: list[int] = []


class Types(BaseProjection[int]):
    """How many events there are of each type."""

    name = "types"

    def key(self, event: EventEnvelope) -> str:
        return event.event_type

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1

    def merge(self, one: int, other: int) -> int:
        return one + other


class Parrot:
    """A model that says how many tokens it took."""

    async def ainvoke(self, prompt: str) -> Any:
        used = {"input_tokens": 4, "output_tokens": 3, "total_tokens": 7}
        return SimpleNamespace(text=prompt, usage_metadata=used, response_metadata={})


async def asks(state: dict[str, Any]) -> dict[str, Any]:
    attempts.append(1)
    await asyncio.sleep(0.02)
    if len(attempts) == 1:
        raise ConnectionError("the line is busy")
    answer = await current_step().invoke("text.shout", {"text": "a"})
    said = await LangChainLLM("fake:parrot").generate("b")
    return {"answer": answer, "said": said["text"]}


async def shouts(state: dict[str, Any]) -> dict[str, Any]:
    return {"text": "A"}


async def held(log: EventLog, topic: str) -> int:
    return sum([1 async for _ in log.read(topic, {}, until=await log.end(topic))])


async def work(home: Path) -> dict[str, int]:
    asking, shouting = StateGraph(dict), StateGraph(dict)
    asking.add_node("asks", asks, retry_policy=RetryPolicy(initial_interval=0.01, jitter=False))
    asking.add_edge(START, "asks")
    shouting.add_node("shouts", shouts)
    shouting.add_edge(START, "shouts")
    provider = agent_from_graph(shouting, "shouter")
    provider.capabilities = (Capability(id="text.shout", input_schema=OBJECT, output_schema=OBJECT),)
    log = await open_log("memory://")
    agents = [agent_from_graph(asking, "sample"), provider]
    async with Worker(log, agents, home=home), Client(log) as client:
        await (await client.start("sample", {})).result(timeout=120)
    rebuilt = await rebuild(log, Types(), home / "states", verify=False, report=lambda line: None)
    counts = {
        "on the log": sum([await held(log, topic.name) for topic in await log.topics()]),
        "folded": rebuilt.events,
    }
    await log.close()
    return counts


def main() -> None:
    reader = InMemoryMetricReader()
    set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    langchain.chat_models.init_chat_model = lambda model, **settings: Parrot()  # type: ignore[assignment]
    counts = asyncio.run(work(Path(sys.argv[1])))
    found: dict[str, list[dict[str, Any]]] = {
        name: [{"attributes": {}, "value": count}] for name, count in counts.items()
    }
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name] = [
                    {
                        "attributes": dict(point.attributes or {}),
                        **{name: getattr(point, name) for name in NUMBERS if hasattr(point, name)},
                    }
                    for point in metric.data.data_points
                ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
