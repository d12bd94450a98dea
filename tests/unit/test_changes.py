"""What the guide "changes" says of versions and formats is what the package has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from noesium_stream.client.proof import proof_file
from noesium_stream.kernel.recording import recorded_run
from noesium_stream.log.broker.runtime import KAFKA_VERSION
from noesium_stream.log.sqlite import file as sqlite_file
from noesium_stream.projection.state import manifest
from noesium_stream.worker.state import state_file
from tests.support.pages import ROOT, guide

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def cell(row: str, column: int) -> str:
    (line,) = [line for line in guide("changes").read_text().splitlines() if line.startswith(f"| {row} |")]
    return line.split("|")[column + 1].strip()


def bound(package: str) -> str:
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["llm"]]
    (found,) = [one.removeprefix(package) for one in wanted if re.match(rf"{package}[<>=]", one)]
    return found


def test_the_bounds_are_those_of_the_project() -> None:
    assert cell("Python", 1) == f"`{PROJECT['requires-python']}`"
    assert cell("LangGraph", 1) == f"`{bound('langgraph')}`"
    assert cell("LangChain (extra `llm`)", 1) == f"`{bound('langchain')}`"
    assert PROJECT["version"] in guide("changes").read_text()


def test_kafka_is_the_one_of_the_tests() -> None:
    assert cell("Apache Kafka", 1).startswith(f"{KAFKA_VERSION.rpartition('.')[0]};")
    assert cell("Apache Kafka", 2).startswith(f"{KAFKA_VERSION},")


@pytest.mark.parametrize(
    ("row", "format"),
    [
        (
            "a SQLite log",
            f"`user_version` {sqlite_file.SCHEMA_VERSION}; "
            f"{sqlite_file.PACKED_VERSION} once it has compressed rows",
        ),
        ("a worker's state", str(state_file.FORMAT)),
        ("a projection's state", str(manifest.FORMAT)),
        ("golden histories", f"`{recorded_run.FORMAT}`"),
        ("exported runs", f"`{proof_file.FORMAT}`"),
    ],
)
def test_formats_are_those_of_the_code(row: str, format: str) -> None:
    assert cell(row, 1) == format


def test_the_newest_envelope_is_named_and_the_older_ones_stay() -> None:
    kept = {path.stem for path in Path(ROOT, "schemas", "envelope").glob("*.avsc")}
    shipped = {path.stem for path in Path(ROOT, "noesium_stream", "event", "codec", "avro").glob("*.avsc")}
    named = set(re.findall(r"`([0-9a-f]{16})`", cell("records: the envelope", 1)))
    assert named == kept == shipped


def test_the_newest_changes_come_first() -> None:
    months = {"November": 11, "December": 12}
    dates = re.findall(r"^## (?:\d+ to )?(\d+) (\w+) (\d{4})$", guide("changes").read_text(), re.MULTILINE)
    keys = [(int(year), months[month], int(day)) for day, month, year in dates]
    assert keys == sorted(keys, reverse=True)
    assert len(keys) >= 2
