"""Failures of clients have classes; mistakes of programs stay what they are."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import ConfigError, ModelAnswerError, NoesiumError
from noesium_stream.llm import OpenAILLM
from noesium_stream.llm import langchain as clients
from tests.support.model_server import Scripted, model_server, said


def openai(url: str = "http://127.0.0.1:1/v1", **more: Any) -> OpenAILLM:
    return OpenAILLM("openai:gpt-4o-mini", base_url=url, api_key="sk-secret", **more)


@pytest.mark.parametrize("error", [ConnectionError("the log is away"), TypeError("a mistake"), KeyError("x")])
async def test_an_error_of_who_takes_the_pieces_is_no_failure_of_the_model(error: Exception) -> None:
    async def write(piece: str) -> None:
        raise error

    with model_server([said("one two three")]) as server, pytest.raises(type(error)) as raised:
        await openai(server.openai).generate("why", write=write)
    assert raised.value is error


async def test_a_mistake_in_this_package_is_no_broken_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Changed:
        async def ainvoke(self, prompt: Any) -> Any:
            """A client that does not take the settings of the call."""

    monkeypatch.setattr(OpenAILLM, "_make_chat", lambda *given: Changed())
    client = openai()
    monkeypatch.setattr(client, "_with_schema", lambda prompt, schema: (prompt, {"unknown": 1}))
    with pytest.raises(TypeError, match="unknown"):
        await client.generate("why", schema={})


def test_a_mistake_while_a_client_is_made_is_no_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients.LangChainLLM, "_make_chat", lambda self, model: None)
    with pytest.raises(TypeError):
        clients.LangChainLLM("openai:gpt-4o-mini")


async def test_what_a_broken_answer_raises_in_a_client_is_a_failure_of_the_model() -> None:
    for raw in (b'{"choices": 5}', b"[1]", b'{"choices": [{"message": 7}]}'):
        with model_server([Scripted(raw=raw)]) as server, pytest.raises(ModelAnswerError):
            await openai(server.openai).generate("why")


async def test_a_prompt_that_is_none_is_no_broken_answer() -> None:
    with pytest.raises((ValueError, NotImplementedError)) as raised:
        await openai().generate([{"role": "nobody", "content": "why"}])
    assert not isinstance(raised.value, NoesiumError)


def test_a_wrong_setting_is_told_without_the_key() -> None:
    with pytest.raises(ConfigError) as raised:
        openai(temperature="sk-secret hot")
    assert "sk-secret" not in str(raised.value)
