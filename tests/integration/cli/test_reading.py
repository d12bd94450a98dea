"""Commands that only look leave a log as it was: one without topics has none afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noesium_stream.log import open_log
from tests.support.command import Folder
from tests.support.kafka import KafkaServer

RUN = "01920000-0000-7000-8000-000000000000"
LOOKING = (
    ("runs",),
    ("workers",),
    ("dlq", "list"),
    ("topics",),
    ("show", RUN),
    ("wait", RUN),
    ("dlq", "show", RUN),
    ("approvals",),
)


@pytest.fixture(params=["sqlite", "kafka"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'log.db'}"
    kafka: KafkaServer = request.getfixturevalue("kafka")
    found: str = kafka.url(request.getfixturevalue("namespace"))
    return found


async def topics(url: str) -> list[str]:
    log = await open_log(url)
    try:
        return sorted(await log.layout())
    finally:
        await log.close()


def test_who_looks_makes_no_topics(url: str, tmp_path: Path) -> None:
    assert asyncio.run(topics(url)) == []
    folder = Folder.with_toys(tmp_path, NOESIUM_LOG=url)
    for arguments in LOOKING:
        ended = folder.run(*arguments)
        assert ended.returncode == (2 if RUN in arguments else 0), ended.stderr
        assert "unexpected" not in ended.stderr
    assert asyncio.run(topics(url)) == []
