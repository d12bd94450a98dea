"""OAUTHBEARER on a real broker: both client libraries by one token, and an endpoint that gives none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.broker.local import LocalBroker
from tests.integration.kafka.test_security import does_everything, opened
from tests.support.kafka import LOCAL_SETTINGS
from tests.support.ports import free_port
from tests.support.tokens import CLIENT, SECRET, TokenServer, token_server

JAAS = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


@pytest.fixture(scope="module")
def port(tokens: TokenServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("oauth")
    keys = tokens.jwks(folder / "jwks.json").as_uri()
    plain, oauth, controller = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{plain},OAUTH://127.0.0.1:{oauth}"
    settings = {
        **LOCAL_SETTINGS,
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OAUTH:SASL_PLAINTEXT",
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{JAAS}.OAuthBearerLoginModule required;",
        "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": f"{JAAS}."
        "OAuthBearerValidatorCallbackHandler",
        "listener.name.oauth.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.jwks.endpoint.url": keys,
    }
    broker = LocalBroker(folder, plain, settings=settings)
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
    try:
        broker.up()
        yield oauth
    finally:
        if before is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = before
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def url(tokens: TokenServer, port: int, namespace: str, secret: str = SECRET) -> str:
    login = f"{quote(CLIENT, safe='')}:{quote(secret, safe='')}"
    return (
        f"kafka://{login}@127.0.0.1:{port}?security=sasl_plaintext&mechanism=oauthbearer"
        f"&token_url={quote(tokens.url, safe='')}&namespace={namespace}"
    )


async def test_a_token_does_everything(tokens: TokenServer, port: int, namespace: str) -> None:
    await does_everything(await opened(url(tokens, port, namespace)))
    assert len(tokens.requests) == 1


async def test_who_gets_no_token_is_not_let_in_and_told(
    tokens: TokenServer, port: int, namespace: str
) -> None:
    with pytest.raises(LogUnavailableError, match="the token endpoint answers 401") as raised:
        await opened(url(tokens, port, namespace, "wrong"))
    assert "wrong" not in str(raised.value)


async def test_a_forged_token_is_not_let_in(tokens: TokenServer, port: int, namespace: str) -> None:
    with token_server() as forger, pytest.raises(LogUnavailableError, match="does not let us in"):
        await opened(url(forger, port, namespace))
