"""TLS, passwords and certificates on a real broker: who is let in can do all, who is not hears it at once."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from tests.support.command import Folder
from tests.support.events import catalogue, counted, outgoing
from tests.support.kafka_secure import KEY_PASSWORD, PASSWORD, USER, SecureKafka, secure_kafka
from tests.support.reading import PATIENCE_S, GroupMember, Tail, eventually, numbers, stored

AT_ONCE_S = PATIENCE_S
WRONG = "not-hunter2"
SECRETS = (PASSWORD, quote(PASSWORD, safe=""), WRONG, KEY_PASSWORD, quote(KEY_PASSWORD))
VARIABLES = ("SECURITY", "MECHANISM", "USERNAME", "PASSWORD", "CA", "CERT", "KEY", "KEY_PASSWORD")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"NOESIUM_KAFKA_{name}", raising=False)


async def opened(url: str) -> EventLog:
    return await open_log(f"{url}{'&' if '?' in url else '?'}partitions=1", catalogue=catalogue())


async def does_everything(log: EventLog) -> None:
    """Each way in which this package uses either client library."""
    topic, journal = log.topology.events("demo"), log.topology.journal("tester")
    await log.ensure_topics([log.topology.spec(journal)])
    await log.append([counted(0, "k"), counted(1, "k")])
    await log.publish(counted(2, "k"))
    assert numbers(await stored(log, topic)) == [0, 1, 2]
    writer, member = await log.writer("w"), GroupMember()
    await writer.commit(outgoing([counted(0)], journal, 0))
    assert numbers(await stored(log, journal)) == [0]
    subscription = await log.subscribe("g", [topic], member.handle)
    async with Tail(log, topic) as tail:
        await tail.has(3)
        await log.publish(counted(3, "k"))
        assert numbers(await tail.has(4)) == [0, 1, 2, 3]
        await eventually(lambda: len(member.records) == 4)
    await subscription.close()
    assert all(info.bytes for info in await log.topics())
    shows_no_secret(log.url, repr(log), str(log), repr(vars(log)))
    await log.close()


def shows_no_secret(*texts: str) -> None:
    for text in texts:
        for secret in SECRETS:
            assert secret not in text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_user_with_a_password_does_everything_over_tls(
    server: SecureKafka, namespace: str, mechanism: str
) -> None:
    await does_everything(await opened(server.url(namespace, mechanism)))


async def test_tls_alone_does_everything(server: SecureKafka, namespace: str) -> None:
    await does_everything(
        await opened(f"kafka://localhost:{server.tls}?ca={server.ca}&namespace={namespace}")
    )


async def test_a_certificate_of_the_client_does_everything(server: SecureKafka, namespace: str) -> None:
    proof = f"ca={server.ca}&cert={server.cert}&key={server.key}&key_password={quote(KEY_PASSWORD)}"
    await does_everything(await opened(f"kafka://localhost:{server.mutual}?{proof}&namespace={namespace}"))


@pytest.mark.parametrize("user", ["", f"{USER}@"])
async def test_the_environment_does_as_well_as_the_url(
    server: SecureKafka, namespace: str, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.setenv("NOESIUM_KAFKA_USERNAME", USER)
    monkeypatch.setenv("NOESIUM_KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("NOESIUM_KAFKA_MECHANISM", "scram-sha-512")
    monkeypatch.setenv("NOESIUM_KAFKA_CA", str(server.ca))
    await does_everything(await opened(f"kafka://{user}localhost:{server.sasl}?namespace={namespace}"))


NOT_LET_IN = [
    ("kafka://me:{wrong}@localhost:{sasl}?ca={ca}", "does not let us in", "NOESIUM_KAFKA_PASSWORD"),
    (
        "kafka://me:{wrong}@localhost:{sasl}?ca={ca}&mechanism=scram-sha-512",
        "does not let us in",
        "NOESIUM_KAFKA_PASSWORD",
    ),
    ("kafka://me:{right}@localhost:{sasl}?ca={other_ca}", "cannot be trusted", "NOESIUM_KAFKA_CA"),
    ("kafka://me:{right}@localhost:{sasl}", "cannot be trusted", "NOESIUM_KAFKA_CA"),
    ("kafka://localhost:{tls}", "hangs up on our plain connection", "security=tls"),
    ("kafka://localhost:{sasl}", "hangs up on our plain connection", "NOESIUM_KAFKA_PASSWORD"),
    ("kafka://localhost:{sasl}?ca={ca}", "hangs up on our encrypted connection", "NOESIUM_KAFKA_PASSWORD"),
    (
        "kafka://me:{right}@localhost:{sasl}?security=sasl_plaintext",
        "hangs up on our plain connection",
        "security=sasl_ssl",
    ),
    ("kafka://localhost:{mutual}?ca={ca}", "hangs up on our encrypted connection", "certificate of ours"),
    ("kafka://localhost:{plain}?ca={ca}", "hangs up on our encrypted connection", "security=plaintext"),
    ("kafka://me:{right}@localhost:{tls}?ca={ca}", "does not let us in", "Check security"),
]


async def test_what_is_not_let_in_is_one_clear_error_within_seconds(
    server: SecureKafka, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(url: str, what: str, advice: str) -> None:
        began = time.monotonic()
        with pytest.raises(LogUnavailableError) as caught:
            await open_log(filled(server, url))
        assert time.monotonic() - began < AT_ONCE_S
        error = caught.value
        assert what in error.message, url
        assert advice in str(error.hint), url
        assert "localhost:" in error.message
        assert "\n" not in error.message
        assert not re.search(r"rdkafka|ssl\.ca|in state|bootstrap", str(error))
        shows_no_secret(str(error), repr(error), *causes(error))

    await asyncio.gather(*(refused(*one) for one in NOT_LET_IN))
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


def filled(server: SecureKafka, url: str) -> str:
    ports = {"sasl": server.sasl, "tls": server.tls, "mutual": server.mutual, "plain": server.plain}
    words = {"wrong": WRONG, "right": quote(PASSWORD, safe=""), "ca": server.ca, "other_ca": server.other_ca}
    return url.format(**ports, **words)


def causes(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield repr(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("way", ["append", "publish", "writer", "read", "tail", "subscribe"])
async def test_a_user_who_was_removed_hears_so_from_whatever_connects_next(
    server: SecureKafka, namespace: str, capfd: pytest.CaptureFixture[str], way: str
) -> None:
    server.add_user("guest", WRONG)
    url = server.url(namespace, "SCRAM-SHA-512", password=WRONG).replace(f"{USER}:", "guest:")
    log = await opened(url)
    topic = log.topology.events("demo")
    await log.ensure_topics([log.topology.spec(topic)])
    other = await opened(f"kafka://127.0.0.1:{server.plain}?namespace={namespace}")
    await other.append([counted(0, "k"), counted(1, "k")])
    await other.close()
    await log.end(topic)
    server.remove_user("guest")
    ways: dict[str, Any] = {
        "append": lambda: log.append([counted(0, "k"), counted(1, "k")]),
        "publish": lambda: log.publish(counted(0, "k")),
        "writer": lambda: log.writer("w"),
        "read": lambda: stored(log, topic),
        "tail": lambda: one_of(log, topic),
        "subscribe": lambda: member_of(log, topic),
    }
    began = time.monotonic()
    with pytest.raises(LogUnavailableError, match="does not let us in"):
        await ways[way]()
    assert time.monotonic() - began < AT_ONCE_S
    await log.close()
    assert capfd.readouterr() == ("", "")


async def one_of(log: EventLog, topic: str) -> Any:
    async for record in log.read(topic, {}):
        return record
    return None


def member_of(log: EventLog, topic: str) -> Awaitable[None]:
    async def member() -> None:
        subscription = await log.subscribe("g", [topic], GroupMember().handle)
        await subscription.wait()

    return member()


def test_the_commands_say_it_in_two_lines_and_never_show_a_secret(
    server: SecureKafka, tmp_path: Path, namespace: str
) -> None:
    folder = Folder(tmp_path)
    url = server.url(namespace, password=WRONG)
    began = time.monotonic()
    done = folder.run("topics", "--log", url)
    assert time.monotonic() - began < AT_ONCE_S
    assert (done.returncode, done.stdout) == (3, "")
    first, second = done.stderr.splitlines()
    assert re.fullmatch(r"error: the Kafka broker at localhost:\d+ does not let us in: .*", first)
    assert "NOESIUM_KAFKA_PASSWORD" in second
    by_variables = Folder(
        tmp_path, NOESIUM_LOG=url, NOESIUM_KAFKA_USERNAME=USER, NOESIUM_KAFKA_PASSWORD=PASSWORD
    )
    configs = [by_variables.run("config"), by_variables.run("config", "--json")]
    assert all(config.returncode == 0 and "kafka://me:***@localhost" in config.stdout for config in configs)
    right = Folder(tmp_path, NOESIUM_KAFKA_USERNAME=USER, NOESIUM_KAFKA_PASSWORD=PASSWORD)
    listed = right.run("topics", "--log", f"kafka://localhost:{server.sasl}?ca={server.ca}")
    assert listed.returncode == 0, listed.stderr
    for ran in (done, *configs, listed):
        shows_no_secret(ran.stdout, ran.stderr)
