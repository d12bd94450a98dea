from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noesium_stream.cli.output import note
from noesium_stream.config import AgentConfig, NoesiumConfig, load_all
from noesium_stream.errors import ConfigError, LogUrlError, NoesiumError
from noesium_stream.log.kafka.settings import PARAMETERS, kafka_settings
from noesium_stream.log.url import COMMON_PARAMETERS, parse_url
from noesium_stream.redaction import (
    SHOWN_PARAMETERS,
    hide_secrets,
    is_secret,
    redacted,
    redacted_url,
    without,
)

SECRET = "hunter2"
AROUND = st.text(st.sampled_from("ab1:/?#&=;@%.,[]"), max_size=6)
PASSWORDS = st.tuples(AROUND, AROUND).map(lambda parts: f"{parts[0]}{SECRET}{parts[1]}")
SCHEMES = st.sampled_from(
    ["kafka://", "kafak://", "https://", "kafka:/", "kafka//", "kafka:", "memory://", ""]
)
NAMES = st.sampled_from(
    ["password", "pasword", "sasl.jaas.config", "SASL_PASSWORD", "token", "api_key", "Authorization", "x"]
)
LOGINS = st.builds(
    lambda scheme, password, rest: f"{scheme}me:{password}@host:9092{rest}",
    SCHEMES,
    PASSWORDS,
    st.sampled_from(["", "/path", "?namespace=x", "?a=1&a=2", "/p?partitions=3"]),
)
QUERIES = st.builds(
    lambda name, password: f"kafka://host:9092?namespace=x&{name}={password}", NAMES, PASSWORDS
)
URLS = st.one_of(LOGINS, QUERIES)


def told(url: str) -> str:
    """All that a user gets to see of a log URL."""
    try:
        parsed = parse_url(url)
        said = f"{parsed} {parsed!r} {[parsed]}"
        return f"{said} {kafka_settings(parsed, {})!r}" if parsed.scheme == "kafka" else said
    except NoesiumError as error:
        return f"{error} {error!r}"


@given(LOGINS)
@example("kafka://me:12/hunter2@host")
@example("kafka://me:1?hunter2@host")
@example("kafka://me:@hunter2?@host:9092")
@example("kafka:/me:hunter2://@host:9092")
@example("memory://me:,hunter2/@host:9092")
def test_no_login_of_a_url_is_shown_however_it_is_mistyped(url: str) -> None:
    assert SECRET not in redacted_url(url)
    assert SECRET not in told(url)
    assert redacted_url(redacted_url(url)) == redacted_url(url)


@given(QUERIES)
def test_no_value_of_an_unknown_parameter_is_shown(url: str) -> None:
    assert SECRET not in redacted_url(url)
    assert redacted_url(redacted_url(url)) == redacted_url(url)


@given(NAMES, st.tuples(st.sampled_from(["", "a/", "a ", 'x="']), st.sampled_from(["", "/b", '";', "=="])))
def test_no_message_about_a_url_shows_a_parameter(name: str, around: tuple[str, str]) -> None:
    assert SECRET not in told(f"kafka://host:9092?{name}={around[0]}{SECRET}{around[1]}")


def test_the_rest_of_a_password_with_an_ampersand_is_not_named() -> None:
    assert SECRET not in told(f"kafka://host?password=a&{SECRET}&b")
    assert SECRET not in told(f"kafka://host?password=a&{SECRET}=1&{SECRET}=2")


def test_the_values_of_parameters_that_are_known_are_shown() -> None:
    assert {*PARAMETERS, *COMMON_PARAMETERS} <= SHOWN_PARAMETERS | {
        "username",
        "password",
        "token_url",
        "key",
        "key_password",
    }
    url = "kafka://me:***@one:9092,two:9093?namespace=x&partitions=3&security=sasl_ssl"
    assert redacted_url(url) == url
    for plain in (
        "sqlite:////home/me@work/a%20b.db?partitions=3",
        "s3://bucket/a@b",
        "localhost:9092",
        "noesium.db",
        "kafka://[::1]:9092",
        "memory://name?seed=1",
        "https://host:8081/a/b",
        "kafka://me@host",
    ):
        assert redacted_url(plain) == plain


@given(URLS, st.sampled_from(["log", "schema_registry"]))
def test_no_setting_shows_a_secret_of_its_url(tmp_path_factory: Any, url: str, name: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    loaded = load_all({name: url}, env={}, folder=folder)
    shown = repr([setting.value for setting in loaded.settings()]) + repr(loaded) + loaded.shown_log
    assert SECRET not in shown


HEADERS = {
    "default_headers": {"Authorization": f"Bearer {SECRET}", "Cookie": f"sid={SECRET}"},
    "base_url": f"https://me:{SECRET}@host/v1",
    "nested": [{"Proxy-Authorization": SECRET}, {"apiKey": SECRET}, f"Authorization: Basic {SECRET}"],
    "model_kwargs": {"extra_headers": {"X-Api-Key": SECRET}, "auth": [SECRET], "PASSWORD": 471_108_155},
}


def test_no_secret_of_a_models_settings_is_shown(tmp_path: Path) -> None:
    env = {"NOESIUM_LLM_CONFIG": json.dumps({**HEADERS, "max_tokens": 5, "seed": 1})}
    loaded = load_all(env=env, folder=tmp_path)
    shown = json.dumps([setting.value for setting in loaded.settings()]) + repr(loaded) + str(loaded.agent)
    assert SECRET not in shown
    assert "471108155" not in shown
    assert '"max_tokens": 5' in shown
    assert loaded.agent.llm_config["base_url"] == HEADERS["base_url"]


@given(
    st.sampled_from(
        ["password", "Secret_Key", "auth.token", "Cookie", "Authorization", "aws_credentials", "jaas", "pwd"]
    )
)
def test_names_are_recognised_in_any_case(name: str) -> None:
    for form in (name, name.upper(), name.lower(), name.title()):
        assert is_secret(form)
        assert hide_secrets({"deep": [{form: SECRET}]}) == {"deep": [{form: "***"}]}


@pytest.mark.parametrize(
    "text",
    [
        f"GET https://me:{SECRET}@host/x?a=1 failed",
        f"401 for Authorization: Basic {SECRET}abc",
        f'{{"password": "{SECRET}"}}',
        f"{{'sasl.password': '{SECRET}'}}",
        f'sasl.jaas.config=org.apache.Plain required username="u" password="{SECRET}";',
        f"Set-Cookie: sid={SECRET}; path=/",
        f"Bearer {SECRET}.{SECRET}",
        f"NOESIUM_KAFKA_PASSWORD={SECRET} noesium runs",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    ],
)
def test_no_text_about_a_failure_shows_a_secret(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert SECRET not in redacted(text)
    assert redacted(redacted(text)) == redacted(text)
    note(text)
    assert SECRET not in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "payload.key: is missing",
        "agent.inbox/3@17: the token is not known",
        "For example kafka://localhost:9092, or sqlite:///noesium.db.",
        "kafka://localhost:9092: no answer; see 'kafka://one:1' (kafka://two:2).",
        "For example memory://, sqlite:///noesium.db, kafka://localhost:9092.",
        "The idempotency_key='abc' has another input.",
        "error: there is no setting 'pasword'.",
    ],
)
def test_a_text_without_a_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_advice_that_names_no_real_port_is_shown_as_it_is() -> None:
    advice = "Use a broker that is there already: --log kafka://HOST:PORT."
    assert redacted(advice) == advice
    assert SECRET not in redacted(f"kafka://HOST:PORT{SECRET}") + redacted(f"kafka://me:PORT@{SECRET}@host:1")


def test_a_providers_message_is_shown_without_the_given_values() -> None:
    assert SECRET not in without(f"Incorrect API key provided: {SECRET}", {"nested": [{"api_key": SECRET}]})


def test_a_key_in_place_of_its_file_is_not_shown() -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{SECRET}"
    with pytest.raises(LogUrlError) as caught:
        kafka_settings(parse_url("kafka://host"), {"NOESIUM_KAFKA_KEY": key})
    assert SECRET not in str(caught.value)


def test_a_value_that_is_refused_is_shown_without_its_secrets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_all({"partitions": f"kafka://me:{SECRET}@h"}, env={}, folder=tmp_path)
    assert SECRET not in f"{caught.value} {caught.value.__cause__}"


def test_models_hide_what_is_refused() -> None:
    with pytest.raises(ValueError, match="extra") as caught:
        NoesiumConfig(**{"pasword": SECRET})
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(AgentConfig(llm_config={"api_key": SECRET}))
