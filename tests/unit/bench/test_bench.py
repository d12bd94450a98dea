"""The bench measures what it says: small runs, both sides, the verdicts and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.log.prepare import standard_headers
from tests.bench import command, sqlite
from tests.bench.by_hand.consume import decode
from tests.bench.by_hand.produce import encode, headers
from tests.bench.by_hand.sqlite_rows import insert, insert_many, open_rows, row
from tests.bench.command import main
from tests.bench.events import catalogue, envelopes
from tests.bench.harness import Figure, Side, interleave, percentile
from tests.bench.settings import Settings
from tests.support.kafka import KafkaServer


def figure(ours: list[float], theirs: list[float], **options: object) -> Figure:
    return Figure("log", "speed", "events/s", Side("ours", ours), Side("theirs", theirs), **options)  # type: ignore[arg-type]


def test_both_sides_write_the_same_bytes_and_headers():
    codec = EnvelopeCodec(catalogue())
    for event in envelopes(30):
        assert encode(event) == codec.encode(event)
        assert headers(event) == standard_headers(event)
        assert decode(codec.encode(event))["payload"] == event.payload


def test_envelopes_have_450_bytes():
    sizes = [len(encode(event)) for event in envelopes(500)]
    assert 440 <= sum(sizes) / len(sizes) <= 460


def test_a_ratio_is_taken_per_repetition_and_its_median_is_judged():
    judged = figure([10.0, 30.0, 20.0], [10.0, 10.0, 10.0], target=2.0)
    assert judged.ratios == [1.0, 3.0, 2.0]
    assert judged.verdict == "met"
    assert figure([10.0, 19.0, 30.0], [10.0, 10.0, 10.0], target=2.0).verdict == "missed"
    assert figure([3.0], [2.0], target=1.4, at_least=False).verdict == "missed"
    assert figure([3.0], [1.0], target=3.0, at_least=False, absolute=True).verdict == "met"
    assert figure([3.0], [1.0]).verdict == "for comparison"


def test_a_figure_prints_both_sides_the_ratio_and_the_verdict():
    text = "\n".join(figure([15.0], [10.0], target=2.0).lines())
    for part in ("ours", "theirs", "1.50", "target >= 2", "MISSED"):
        assert part in text


async def test_sides_take_turns_in_changing_order():
    order: list[str] = []

    async def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    values = await interleave({"a": lambda: side("a"), "b": lambda: side("b")}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert values == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_a_percentile_is_one_of_the_values():
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.5) == 50.0
    assert percentile([7.0], 0.99) == 7.0


def test_the_table_by_hand_holds_every_row_of_a_commit(tmp_path: Path):
    connection = open_rows(tmp_path / "rows.db", "FULL")
    rows = [row(event) for event in envelopes(5)]
    insert(connection, rows[0])
    insert_many(connection, rows[1:])
    assert connection.execute("SELECT key, headers, value FROM log ORDER BY id").fetchall() == rows
    connection.close()


async def test_every_figure_of_sqlite_is_measured(tmp_path: Path):
    figures = await sqlite.measure(
        Settings(tmp_path, repetitions=1, commits=20, warm_up=5, wakes=10, idle_s=0.8)
    )
    names = {figure.name for figure in figures}
    for synchronous in ("FULL", "NORMAL"):
        assert f"commit of 1 event, p50, {synchronous}" in names
        assert f"commits of 500, {synchronous}, storing" in names
    assert "a reader in another process wakes, p99" in names
    assert all(
        value > 0 for figure in figures for side in (figure.ours, figure.theirs) for value in side.values
    )


def test_a_small_run_on_kafka_is_measured_printed_and_kept(
    kafka: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    history = tmp_path / "history.jsonl"
    arguments = (
        f"log --events 400 --batch 100 --repetitions 1 --tail-events 2000 --only append,read,tail --json "
        f"--bootstrap {kafka.bootstrap} --folder {tmp_path} --history {history}"
    ).split()
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    [kept] = [json.loads(line) for line in history.read_text().splitlines()]
    assert printed["figures"] == kept["figures"]
    assert {figure["group"] for figure in kept["figures"]} == {"append", "read", "tail"}
    assert kept["settings"]["events"] == 400
    assert kept["machine"]["confluent-kafka"]


def test_what_cannot_be_measured_ends_with_1_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    async def broken(*_: object) -> list[Figure]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(command.sqlite, "measure", broken)
    assert main(["log", "--only", "sqlite", "--json", "--folder", str(tmp_path)]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == {"sqlite": "OSError: the disk is gone"}


@pytest.mark.parametrize("arguments", ["log --only speed", "log --events 0", "log --log sqlite:///x.db"])
def test_a_wrong_argument_is_refused_before_anything_runs(arguments: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err
