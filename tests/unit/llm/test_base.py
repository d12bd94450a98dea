"""What a model's call leaves in the events."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.config import ExecutionMode
from noesium_stream.errors import ConfigError, RunFailedError
from noesium_stream.kernel.modes import in_mode
from noesium_stream.llm import JournaledLLM, LangChainLLM, ModelParameters
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S


class State(TypedDict, total=False):
    answer: str


class Model:
    def __init__(self, **parameters: Any) -> None:
        self.parameters = ModelParameters("fake:one", **parameters)
        self.given: list[Any] = []

    @property
    def model(self) -> str:
        return "fake:one"

    async def generate(self, prompt: str, *, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        self.given.append(parameters)
        return {"text": prompt.upper(), "model": self.model, "tokens": 1}


def asking(model: Model, mode: ExecutionMode) -> StateGraph[Any, Any, Any, Any]:
    async def ask(state: State) -> dict[str, Any]:
        with in_mode(mode):
            return {"answer": await JournaledLLM(model).complete("why")}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph


async def test_seed_temperature_name_and_version_are_in_the_event_of_the_call(tmp_path: Path) -> None:
    model = Model(version="2026-01-01", temperature=0.5, seed=7)
    async with running(asking(model, ExecutionMode.STRICT), tmp_path) as client:
        run = await client.start("sample", {})
        assert (await run.result(timeout=PATIENCE_S))["answer"] == "WHY"
        requested = [e.payload async for e in run.events(follow=False) if e.event_type == "effect.requested"]
    expected = {"model": "fake:one", "version": "2026-01-01", "temperature": 0.5, "seed": 7}
    assert [payload["arguments"]["kwargs"]["parameters"] for payload in requested] == [expected]
    assert model.given == [expected]


async def test_in_strict_mode_a_model_without_a_seed_is_not_asked(tmp_path: Path) -> None:
    model = Model(version="1", temperature=0)
    async with running(asking(model, ExecutionMode.STRICT), tmp_path) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match="does not say its seed"):
            await run.result(timeout=PATIENCE_S)
    assert model.given == []


async def test_in_pragmatic_mode_what_is_not_known_is_recorded_as_such(tmp_path: Path) -> None:
    model = Model()
    async with running(asking(model, ExecutionMode.PRAGMATIC), tmp_path) as client:
        assert (await (await client.start("sample", {})).result(timeout=PATIENCE_S))["answer"] == "WHY"
    assert model.given == [{"model": "fake:one", "version": None, "temperature": None, "seed": None}]


async def test_langchain_gets_seed_and_temperature_and_its_answer_says_who_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    class Chat:
        async def ainvoke(self, prompt: str) -> Any:
            metadata = {"model_name": "one-2026", "system_fingerprint": "fp", "id": 5}
            return SimpleNamespace(text="yes", usage_metadata={"total_tokens": 4}, response_metadata=metadata)

    def init(model: str, **kwargs: Any) -> Chat:
        made.append((model, kwargs))
        return Chat()

    monkeypatch.setattr("langchain.chat_models.init_chat_model", init)
    client = LangChainLLM("fake:one", seed=7, version="2026", top_p=1)
    answer = await client.generate("why", parameters=client.parameters.to_dict())
    assert made == [("fake:one", {"temperature": 0, "seed": 7, "top_p": 1})]
    assert answer == {
        "model": "fake:one",
        "version": "2026",
        "temperature": 0,
        "seed": 7,
        "text": "yes",
        "tokens": 34,
        "usage": {"input_tokens": 17, "output_tokens": 17, "cached_tokens": None, "estimated": True},
        "cost_nano_usd": None,
        "answered_by": {"model_name": "one-2026", "system_fingerprint": "fp"},
    }
    LangChainLLM("fake:one")
    assert made[1] == ("fake:one", {"temperature": 0}), "no seed is made up"


def test_an_unknown_provider_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="nobody:one cannot be used"):
        LangChainLLM("nobody:one")
