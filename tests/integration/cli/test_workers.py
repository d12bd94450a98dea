"""`noesium workers` and a worker's health, of real processes that are killed, on SQLite and on Kafka."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Folder, Running
from tests.support.kafka import KafkaServer
from tests.support.ports import free_port
from tests.support.reading import PATIENCE_S

ECHO = "agents.echo"


@pytest.fixture(params=["sqlite", "kafka"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "sqlite":
        return Folder.with_toys(tmp_path, NOESIUM_PARTITIONS="2")
    kafka: KafkaServer = request.getfixturevalue("kafka")
    url = kafka.url(request.getfixturevalue("namespace"))
    return Folder.with_toys(tmp_path, NOESIUM_LOG=url, NOESIUM_PARTITIONS="2")


def ready(port: int) -> dict[str, Any]:
    """What `/readyz` says; nothing while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))
    except urllib.error.URLError:
        return {}


def seen(
    folder: Folder, process: Running, wanted: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """`noesium workers`, as soon as it shows what is wanted."""
    found: list[dict[str, Any]] = []

    def shown(_: Running) -> bool:
        found[:] = folder.json("workers", "--json")
        return wanted(found)

    process.wait_for(shown)
    return found


def test_the_owner_of_each_partition_is_shown_and_changes_when_it_is_killed(folder: Folder) -> None:
    port = free_port()
    with folder.running("worker", ECHO, "--health", str(port)) as first:
        first.wait_for(lambda _: ready(port).get("partitions") == {"echo": [0, 1]})
        assert ready(port)["ready"] is True
        owned = seen(folder, first, lambda rows: all(row["epoch"] is not None for row in rows))
        assert [row["partition"] for row in owned] == [0, 1]
        assert {row["owner"].rpartition("/")[2] for row in owned} == {str(first.pid)}
        text = folder.ok("workers").splitlines()
        assert text[0].split() == ["agent", "partition", "owner", "epoch", "lag", "open", "oldest", "step"]
        assert text[1].split()[:4] == ["echo", "0", owned[0]["owner"], str(owned[0]["epoch"])]
        first.signal(signal.SIGKILL)
        first.wait()
    with folder.running("worker", ECHO) as second:
        after = seen(
            folder,
            second,
            lambda rows: all(row["epoch"] and row["instance_id"] != owned[0]["instance_id"] for row in rows),
        )
    assert {row["owner"].rpartition("/")[2] for row in after} == {str(second.pid)}
    assert all(new["epoch"] > old["epoch"] for new, old in zip(after, owned, strict=True))


def test_a_worker_makes_as_many_partitions_as_it_is_told_and_says_where_there_are_fewer(
    folder: Folder,
) -> None:
    with folder.running("worker", ECHO, "--partitions", "5") as first:
        first.wait_for_error_line("at work on")
        folder.ok("run", ECHO, "hello")
    found = {
        row["name"].rpartition(".agent.")[2]: row["partitions"] for row in folder.json("topics", "--json")
    }
    assert found["echo.inbox"] == found["echo.journal"] == 5
    with folder.running("worker", ECHO, "--partitions", "7") as second:
        told = second.wait_for_error_line("noesium topics grow echo --partitions 7")
        assert "echo has 5 partitions and keeps them, 7 are for new topics" in told
