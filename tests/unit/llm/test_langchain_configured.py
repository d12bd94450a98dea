"""An agent's `llm_config`: what reaches the provider, what the event has of it, and what is refused."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.chat_models.base import _get_chat_model_creator

from noesium_stream.client import Client
from noesium_stream.config import AgentConfig, load_all
from noesium_stream.errors import ConfigError, RunFailedError
from noesium_stream.llm import LangChainLLM
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.command import Folder
from tests.support.reading import PATIENCE_S

MODEL = Path(__file__).parents[2] / "data" / "model"
ALL = {"seed": 7, "temperature": 0.25, "version": "2026-01-01", "num_predict": 50}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripted provider `ollama`, and the agent that asks it."""
    monkeypatch.syspath_prepend(str(MODEL))
    for name in [name for name in sys.modules if name.partition(".")[0] == "langchain_ollama"]:
        monkeypatch.delitem(sys.modules, name)  # the provider's own package
    _get_chat_model_creator.cache_clear()
    yield
    _get_chat_model_creator.cache_clear()
    for name in ("langchain_ollama", "clerk"):
        sys.modules.pop(name, None)


async def asked(home: Path, llm_config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The answer of a run of the clerk, and the parameters that its model call has on the log."""
    clerk = importlib.import_module("clerk").AGENT
    log = await open_log("memory://")
    options = clerk.Options(model="ollama:small")
    try:
        async with Worker(log, [(clerk, options)], home=home, llm_config=llm_config), Client(log) as client:
            run = await client.start("clerk", {"question": "why"})
            result = await run.result(timeout=PATIENCE_S)
            [call] = [e.payload async for e in run.events(follow=False) if e.event_type == "effect.requested"]
    finally:
        await log.close()
    return result["answer"], call["arguments"]["kwargs"]["parameters"]


@pytest.mark.usefixtures("provider")
async def test_seed_temperature_version_and_more_reach_the_provider_and_the_event(tmp_path: Path) -> None:
    answer, recorded = await asked(tmp_path, ALL)
    assert answer == "why t=0.25 s=7 n=50"
    assert recorded == {
        "model": "ollama:small",
        "version": "2026-01-01",
        "temperature": 0.25,
        "seed": 7,
        "more": {"num_predict": 50},
    }


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize(
    ("left_out", "setting"),
    [
        ("seed", r'agent\.llm_config \(NOESIUM_LLM_CONFIG\) \{"seed": 1\}'),
        ("version", r'agent\.llm_config \(NOESIUM_LLM_CONFIG\) \{"version": "…"\}'),
    ],
)
async def test_what_a_strict_agent_s_model_does_not_say_is_asked_for_by_its_setting(
    tmp_path: Path, left_out: str, setting: str
) -> None:
    config = {name: value for name, value in ALL.items() if name != left_out}
    with pytest.raises(RunFailedError, match=f"does not say its {left_out}") as caught:
        await asked(tmp_path, config)
    assert caught.match(setting)


@pytest.mark.usefixtures("provider")
async def test_a_temperature_that_is_not_given_is_missing_in_strict_mode(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="does not say its temperature") as caught:
        await asked(tmp_path, {**ALL, "temperature": None})
    assert caught.match("NOESIUM_LLM_CONFIG")


@pytest.mark.usefixtures("provider")
async def test_several_that_are_missing_are_named_together(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="does not say its version and seed") as caught:
        await asked(tmp_path, {})
    assert caught.match(r'\{"version": "…"\} and \{"seed": 1\}')


@pytest.mark.usefixtures("provider")
async def test_no_secret_is_in_the_event(tmp_path: Path) -> None:
    secrets = {
        "api_key": "sk-hidden",
        "default_headers": {"Authorization": "Bearer hidden"},
        "base_url": "http://me:hidden@host/",
    }
    _, recorded = await asked(tmp_path, {**ALL, **secrets, "stop": ["."]})
    assert "hidden" not in json.dumps(recorded)
    assert recorded["more"] == {
        "num_predict": 50,
        "api_key": "***",
        "default_headers": "***",
        "base_url": "http://me:***@host/",
        "stop": ["."],
    }


@pytest.mark.usefixtures("provider")
async def test_a_number_is_no_secret_whatever_its_name(tmp_path: Path) -> None:
    client = LangChainLLM.configured("ollama:small", {"max_tokens": 5})
    assert client.parameters.more == {"max_tokens": 5}


@pytest.mark.usefixtures("provider")
def test_a_key_that_the_provider_does_not_take_is_told_with_what_is_near() -> None:
    with pytest.raises(
        ConfigError, match=r"ChatOllama, the client of the model ollama:small, takes no 'sed'"
    ) as e:
        LangChainLLM.configured("ollama:small", {"sed": 7})
    assert "Did you mean 'seed'?" in str(e.value.hint)
    assert "agent.llm_config (NOESIUM_LLM_CONFIG)" in str(e.value.hint)


@pytest.mark.usefixtures("provider")
def test_a_value_that_the_provider_refuses_is_told_without_the_values() -> None:
    with pytest.raises(ConfigError, match="cannot be used: num_predict: ") as caught:
        LangChainLLM.configured("ollama:small", {"num_predict": "many", "api_key": "sk-hidden"})
    assert "hidden" not in str(caught.value)
    with pytest.raises(ConfigError, match="there is no server at nowhere"):
        LangChainLLM.configured("ollama:small", {"base_url": "nowhere"})


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"seed": "7"}, "'seed' is an integer, not '7'"),
        ({"seed": True}, "'seed' is an integer, not True"),
        ({"temperature": "hot"}, "'temperature' is a number, not 'hot'"),
        ({"version": 2026}, "'version' is a text, not 2026"),
        ({"model": "x"}, r"'model' has a setting of its own, agent\.llm_model \(NOESIUM_LLM_MODEL\)"),
        ({"model_provider": "x"}, r"agent\.llm_provider \(NOESIUM_LLM_PROVIDER\)"),
    ],
)
def test_a_value_that_no_model_can_have_is_refused_where_it_is_read(
    config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"NOESIUM_LLM_CONFIG: .*{reason}"):
        load_all(env={"NOESIUM_LLM_CONFIG": json.dumps(config)}, folder=tmp_path)
    with pytest.raises(ConfigError, match=reason):
        LangChainLLM.configured("ollama:small", config)
    assert AgentConfig(llm_config={"temperature": None, "seed": None}).llm_config["seed"] is None


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    shutil.copytree(MODEL, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return Folder(tmp_path, NOESIUM_LLM_PROVIDER="ollama", NOESIUM_LLM_MODEL="small")


def test_the_command_line_gives_it_to_the_agent(folder: Folder) -> None:
    folder.env["NOESIUM_LLM_CONFIG"] = json.dumps(ALL)
    found = folder.json("run", "clerk", "why", "--json")
    assert found["answer"] == "why t=0.25 s=7 n=50"
    folder.ok("verify", found["run_id"], "--graph", "clerk", "-o", "model=ollama:small")


def test_the_command_line_says_what_is_wrong_with_it_in_one_line(folder: Folder) -> None:
    for config, said in [
        ('{"sed": 7}', "takes no 'sed'"),
        ('{"seed": "7"}', "'seed' is an integer"),
        ("[]", "cannot be the value of agent.llm_config"),
    ]:
        folder.env["NOESIUM_LLM_CONFIG"] = config
        done = folder.run("run", "clerk", "why")
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert "NOESIUM_LLM_CONFIG" in done.stderr
