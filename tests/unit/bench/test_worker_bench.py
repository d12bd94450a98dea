"""The worker's bench measures what it says: small runs on a real broker, and what it writes by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.log.prepare import standard_headers
from tests.bench.by_hand import handle
from tests.bench.by_hand.produce import encode, record
from tests.bench.command import main
from tests.bench.events import catalogue, envelopes
from tests.bench.harness import Figure
from tests.bench.worker import OF_WORKER
from tests.bench.worker_agents import Summed
from tests.bench.worker_memory import slope
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer


@pytest.fixture
def small(tmp_path: Path) -> WorkerSettings:
    return WorkerSettings(
        tmp_path,
        repetitions=1,
        graph_runs=20,
        steps=4,
        runs=600,
        finished=20,
        open_runs=3,
        queued=500,
        asked=3,
    )


def positive(figures: list[Figure]) -> bool:
    return all(
        value > 0
        for figure in figures
        if figure.unit != "B a run"  # what does not grow may shrink
        for side in (figure.ours, figure.theirs)
        for value in side.values
    )


def test_what_is_made_by_hand_has_the_fields_and_headers_of_ours():
    known = catalogue()
    known.register(Summed)
    [source, _] = envelopes(2)
    payload = {"call_id": "call-1", "tool": "offset", "total": 7}
    read: dict[str, Any] = {**record(source), "payload": source.payload}
    made = handle.envelope(read, Summed.TYPE, payload)
    ours = EnvelopeCodec(known).decode(_encoded(made))
    assert record(ours) == made
    assert ours.payload == payload
    assert [name for name, _ in handle.headers(made, b"1:0:1")] == [
        *(name for name, _ in standard_headers(ours)),
        "noesium_commit",
    ]
    assert handle.headers(made, b"1:0:1")[:6] == standard_headers(ours)
    assert len(encode(ours)) == len(_encoded(made))


def _encoded(made: dict[str, Any]) -> bytes:
    out = handle.io.BytesIO()
    out.write(handle.FRAME)
    handle.fastavro.schemaless_writer(out, handle.SCHEMA, made)
    return out.getvalue()


@pytest.mark.parametrize("group", ["step", "fairness", "takeover", "memory"])
async def test_every_part_is_measured(group: str, small: WorkerSettings, kafka: KafkaServer):
    figures = await OF_WORKER[group](small, kafka)
    assert positive(figures)
    assert {figure.group for figure in figures} == {group}
    assert figures[0].target is not None


def test_what_is_kept_of_each_run_is_the_slope_behind_the_first_tenth():
    warming_up = [(number, 100 + number / 100) for number in range(0, 10_000, 500)]
    settled = [(number, 200.0 + number % 3) for number in range(10_500, 100_001, 500)]
    assert abs(slope([*warming_up, *settled])) < 1
    leaking = [(number, mb + number * 85 / 1e6) for number, mb in settled]
    assert slope([*warming_up, *leaking]) == pytest.approx(85, abs=1)


@pytest.mark.soak
def test_the_command_keeps_what_it_measured(
    kafka: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    history = tmp_path / "history.jsonl"
    arguments = (
        f"worker --only graph --graph-runs 20 --repetitions 1 --json --bootstrap {kafka.bootstrap} "
        f"--folder {tmp_path} --history {history}"
    ).split()
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    [kept] = [json.loads(line) for line in history.read_text().splitlines()]
    assert printed["figures"] == kept["figures"]
    assert kept["settings"]["graph_runs"] == 20
    assert [figure["target"] for figure in kept["figures"]] == [0.8, 0.8, None, None, None, None]
