"""Where settings come from, which one wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.cli.misspelt import misspelt_variables
from noesium_stream.config import (
    VARIABLES,
    AgentConfig,
    NoesiumConfig,
    load_all,
    load_config,
)
from noesium_stream.errors import ConfigError
from noesium_stream.redaction import hide_secrets


def test_without_anything_the_log_is_a_sqlite_file_in_the_home_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(env={})
    assert config.home == tmp_path / ".noesium"
    assert config.log == f"sqlite:///{tmp_path}/.noesium/log.db"
    assert config.log.startswith("sqlite:////")


def test_the_default_log_follows_the_home(tmp_path: Path) -> None:
    config = load_config(env={"NOESIUM_HOME": str(tmp_path / "a b")}, folder=tmp_path)
    assert config.log == f"sqlite:///{tmp_path}/a%20b/log.db"


def test_an_option_beats_a_variable_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    assert load_config(env={}, folder=tmp_path).namespace == "noesium"
    (tmp_path / "noesium.toml").write_text('namespace = "file"\n')
    assert load_config(env={}, folder=tmp_path).namespace == "file"
    env = {"NOESIUM_NAMESPACE": "variable"}
    assert load_config(env=env, folder=tmp_path).namespace == "variable"
    assert load_config({"namespace": "option"}, env=env, folder=tmp_path).namespace == "option"


def test_every_value_says_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "noesium.toml").write_text('runtime_id = "x"\n[agent]\nllm_model = "small"\n')
    loaded = load_all(
        {"log": "memory://", "home": None}, env={"NOESIUM_LLM_PROVIDER": "ollama"}, folder=tmp_path
    )
    sources = {setting.name: setting.source for setting in loaded.settings()}
    assert sources["log"] == "--log"
    assert sources["home"] == "default"
    assert sources["runtime_id"] == "noesium.toml"
    assert sources["agent.llm_model"] == "noesium.toml"
    assert sources["agent.llm_provider"] == "NOESIUM_LLM_PROVIDER"
    assert loaded.agent.model == "ollama:small"


def test_every_field_of_both_models_has_a_variable_and_a_description() -> None:
    names = set(NoesiumConfig.model_fields) | {f"agent.{name}" for name in AgentConfig.model_fields}
    assert set(VARIABLES) == names
    assert len(set(VARIABLES.values())) == len(VARIABLES)
    assert all(setting.description for setting in load_all(env={}).settings())


@pytest.mark.parametrize(
    ("variable", "text", "field", "expected"),
    [
        ("NOESIUM_RUNTIME_ID", "east", "runtime_id", "east"),
        ("NOESIUM_LOG", "kafka://h:9092", "log", "kafka://h:9092"),
        ("NOESIUM_PARTITIONS", "3", "partitions", 3),
        ("NOESIUM_LOG_LEVEL", "debug", "log_level", "DEBUG"),
    ],
)
def test_a_variable_sets_its_field(
    tmp_path: Path, variable: str, text: str, field: str, expected: object
) -> None:
    assert getattr(load_config(env={variable: text}, folder=tmp_path), field) == expected


@pytest.mark.parametrize(
    ("variable", "text", "field", "expected"),
    [
        ("NOESIUM_LLM_MODEL", "small", "llm_model", "small"),
        ("NOESIUM_LLM_CONFIG", '{"temperature": 0}', "llm_config", {"temperature": 0}),
    ],
)
def test_a_variable_sets_a_field_of_agents(
    tmp_path: Path, variable: str, text: str, field: str, expected: object
) -> None:
    assert getattr(load_all(env={variable: text}, folder=tmp_path).agent, field) == expected


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load_config(env={"NOESIUM_NAMESPACE": ""}, folder=tmp_path).namespace == "noesium"


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("NOESIUM_SIGNATURES", "none", "'optional' or 'required'"),
        ("NOESIUM_PARTITIONS", "many", "integer"),
        ("NOESIUM_PARTITIONS", "0", "greater than or equal to 1"),
        ("NOESIUM_LOG_LEVEL", "LOUD", "'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
        ("NOESIUM_NAMESPACE", "A.b", "pattern"),
    ],
)
def test_a_bad_value_is_refused_with_its_variable_value_and_what_is_allowed(
    tmp_path: Path, variable: str, text: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(env={variable: text}, folder=tmp_path)
    message = str(caught.value)
    assert variable in message
    assert repr(text) in message
    assert allowed in message


def test_json_that_is_none_is_refused_with_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NOESIUM_LLM_CONFIG is not valid JSON"):
        load_config(env={"NOESIUM_LLM_CONFIG": "{"}, folder=tmp_path)
    with pytest.raises(ConfigError, match="NOESIUM_LLM_CONFIG"):
        load_config(env={"NOESIUM_LLM_CONFIG": "[]"}, folder=tmp_path)


def test_a_setting_that_does_not_exist_is_refused_and_the_known_ones_are_named(tmp_path: Path) -> None:
    (tmp_path / "noesium.toml").write_text("partition = 3\n")
    with pytest.raises(ConfigError, match=r"noesium.toml: there is no setting 'partition'(.|\n)*partitions"):
        load_config(env={}, folder=tmp_path)
    (tmp_path / "noesium.toml").write_text("agent = 3\n")
    with pytest.raises(ConfigError, match="no setting 'agent'"):
        load_config(env={}, folder=tmp_path)


def test_a_file_that_is_no_toml_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "noesium.toml").write_text("log =\n")
    with pytest.raises(ConfigError, match=r"noesium.toml is not valid TOML") as refused:
        load_config(env={}, folder=tmp_path)
    assert "Correct that place" in str(refused.value.hint)


def test_a_table_of_pyproject_is_read_where_there_is_no_file_of_our_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.noesium]\npartitions = 2\n")
    loaded = load_all(env={}, folder=tmp_path)
    assert loaded.noesium.partitions == 2
    assert loaded.sources["partitions"] == "pyproject.toml [tool.noesium]"


@pytest.mark.parametrize(
    "url",
    [
        "kafka://user:hunter2@host:9092",
        "kafka://user:hun/ter2@host:9092?security=sasl_ssl",
        "kafka://host:9092?sasl_username=u&sasl_password=hunter2",
        "kafka://host:9092?ssl_key_password=hunter2&namespace=a",
    ],
)
def test_no_secret_of_a_url_is_ever_shown(tmp_path: Path, url: str) -> None:
    loaded = load_all({"log": url}, env={}, folder=tmp_path)
    shown = repr([setting.value for setting in loaded.settings()])
    assert "hunter2" not in shown
    assert "ter2" not in shown
    assert "host:9092" in shown
    assert loaded.noesium.log == url


def test_secret_looking_names_are_hidden_at_any_depth() -> None:
    shown = hide_secrets({"api_key": "k1", "deep": [{"token": "k2", "n": 1}]})
    assert shown == {"api_key": "***", "deep": [{"token": "***", "n": 1}]}
    assert hide_secrets("plain") == "plain"


def test_a_bad_value_with_a_secret_is_reported_without_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"runtime_id": ["kafka://u:hunter2@h"]}, env={}, folder=tmp_path)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("password", ["hunter2?x", "hun?hunter2", "hun?a=hunter2"])
def test_a_password_that_breaks_its_url_is_hidden_all_the_same(password: str) -> None:
    assert hide_secrets(f"kafka://user:{password}@host:9092") in (
        "kafka://user:***@host:9092",
        "kafka://user:***",
    )
    assert hide_secrets("kafka://one:9092,two?namespace=a") == "kafka://one:9092,two?namespace=a"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NOESIUM_LOGG", "NOESIUM_LOG"),
        ("NOESIUM_SIGNATURE", "NOESIUM_SIGNATURES"),
        ("NOESIUM_KAFKA_USER_NAME", "NOESIUM_KAFKA_USERNAME"),
        ("NOESIUM_PUBLIC_KEY", "NOESIUM_PUBLIC_KEYS"),
        ("NOESIUM_LOG", None),
        ("NOESIUM_KAFKA_PORT_1", None),
        ("NOESIUM_KAFKA_NEW_PASSWORD", None),
        ("NOESIUM_SHOP_URL", None),
        ("LOG", None),
    ],
)
def test_a_misspelt_variable_is_told_with_the_name_that_is_meant(name: str, meant: str | None) -> None:
    assert misspelt_variables({name: "x"}) == ({} if meant is None else {name: meant})
