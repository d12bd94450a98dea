"""Log URLs: read, refused with a hint, never shown with a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.errors import LogUrlError, NoesiumError
from noesium_stream.log.open import open_log
from noesium_stream.log.sqlite.store import file_of
from noesium_stream.log.topics import Topology
from noesium_stream.log.url import parse_url
from noesium_stream.redaction import redacted_url


def test_a_broker_url_is_read_into_its_parts() -> None:
    url = parse_url("kafka://me:p%40ss@one:9092,two:9093?namespace=test&partitions=3&security=SASL_SSL")
    assert url.hosts == ("one:9092", "two:9093")
    assert (url.user, url.password) == ("me", "p@ss")
    assert url.topology() == Topology("test", 3)
    assert url.parameters["security"] == "SASL_SSL"


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_of(parse_url("sqlite:///a/b.db")) == tmp_path / "a" / "b.db"
    assert file_of(parse_url("sqlite:////a/b%20c.db")) == Path("/a/b c.db")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kafak://localhost:9092", ["kafak://", "Did you mean kafka://?"]),
        ("sqlit:///x", ["Did you mean sqlite://?"]),
        ("ftp://x", ["ftp://", "memory://"]),
        ("noesium.db", ["not a log URL", "sqlite:///"]),
        ("kafka://", ["host is missing", "kafka://localhost:9092"]),
        ("kafka://?namespace=x", ["host is missing"]),
        ("kafka://h:1/topic", ["no path"]),
        ("sqlite://x.db", ["Three slashes", "sqlite:///x.db"]),
        ("sqlite:///", ["path of the file is missing"]),
        ("memory://x/y", ["no path"]),
        ("memory://?seed=1&seed=2", ["'seed'", "twice"]),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_with_a_hint(url: str, words: list[str]) -> None:
    with pytest.raises(LogUrlError) as caught:
        parse_url(url)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://?sed=1", ["no parameter 'sed'", "Did you mean seed?"]),
        ("memory://?seed=x", ["seed='x'", "whole number"]),
        ("memory://?namespace=Über", ["not a namespace"]),
        ("memory://?partitions=0", ["partitions='0'"]),
        ("sqlite:///x.db?synchronous=OFF", ["synchronous='OFF'", "FULL, NORMAL"]),
        ("sqlite:///x.db?nonsense=1", ["no parameter 'nonsense'", "synchronous"]),
    ],
)
async def test_a_parameter_that_is_unknown_or_wrong_is_refused_with_a_hint(
    url: str, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LogUrlError) as caught:
        await open_log(url)
    for word in words:
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []


SECRETS = [
    "kafka://me:s3cret@host:9092?namespace=x",
    "kafka://me:a/s3cret@host:9092",
    "kafka://me:a@s3cret@host:9092",
    "kafka://host:9092?sasl_password=s3cret&namespace=x",
    "kafka://host:9092?ssl.key.password=s3cret",
    "kafka://host:9092?token=s3cret",
    "kafka://me:s3cret@",
    "kafka://me:s3cret@host/path",
    "kafak://me:s3cret@host",
    "kafka://me:s3cret@host?a=1&a=2",
    "kafka://me:s3?cret@host:9092",
    "kafka://me:s3cret?x@host:9092",
    "kafka://me:s3cret?x=y@host:9092",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_never_shown(text: str) -> None:
    assert "s3cret" not in redacted_url(text)
    assert "s3cret" not in shown(text)


def shown(text: str) -> str:
    """Everything that a user may get to see of this URL."""
    try:
        url = parse_url(text)
    except NoesiumError as error:
        return f"{error} {error!r}"
    return f"{url} {url!r}"


async def test_without_a_url_the_configured_log_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOESIUM_LOG", raising=False)
    monkeypatch.setenv("NOESIUM_HOME", str(tmp_path / "home"))
    log = await open_log()
    assert log.url == f"sqlite:///{tmp_path}/home/log.db"
    assert (tmp_path / "home" / "log.db").exists()
    await log.close()
    monkeypatch.setenv("NOESIUM_LOG", "memory://")
    log = await open_log()
    assert log.url == "memory://"
    await log.close()
