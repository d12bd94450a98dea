"""The projections of the package are pure: the same rows under every hash seed, wherever a fold is cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noesium_stream.errors import EventHeldError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.log.prepare import standard_headers
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.load import SHIPPED, load_projection
from noesium_stream.projection.purity_check import PurityCheck
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Identity
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.state_file.claim import discard
from noesium_stream.testing.golden import read_history

HISTORIES = sorted((Path(__file__).parents[2] / "replay").glob("*.history.jsonl"))
TOPIC = "noesium.agent.all.journal"
OF_RUNS = [name for name in SHIPPED if name != "goals"]
"""No recorded run sets itself goals: `tests/property/test_goal_fold.py` does the same for them."""
CODEC = EnvelopeCodec(standard_catalogue())


def records_of(run: RecordedRun, start: int) -> list[Record]:
    """A recorded run as it lay in its journal, without its agent's own events, which nobody here knows."""
    found = []
    known = [item.event for item in run.events if item.event.event_type in _KNOWN]
    run_id = known[0].partition_key or ""
    for number, event in enumerate(known):
        headers = [*standard_headers(event), ("noesium_seq", b"%d" % number)]
        if event.event_type == "capability.completed":
            headers.append(("noesium_origin", b"elsewhere/0"))
        found.append(Record(TOPIC, 0, start + number, 1_000, run_id, headers, CODEC.encode(event), CODEC))
    return found


_KNOWN = frozenset(standard_catalogue().types())


@cache
def all_records() -> list[Record]:
    found: list[Record] = []
    for path in HISTORIES:
        records = records_of(read_history(path), len(found))
        if records[0].key not in {record.key for record in found}:  # two were recorded at one virtual moment
            found += records
    return found


def fold_on(projection: BaseProjection[Any], path: Path, **options: Any) -> PartitionFold[Any]:
    codec: StateCodec[Any] = StateCodec(projection)
    identity = Identity(projection.name, projection.version, codec.shape, TOPIC, "uid", 0)
    return PartitionFold(projection, codec, StateFile.open(path, identity), journal=True, **options)


def rows_after(name: str, records: list[Record], path: Path, cuts: list[int]) -> dict[str, str]:
    """The rows of a fold that is flushed, closed and opened again at these offsets."""
    bounds = [0, *sorted(cuts), len(records)]
    for first, last in pairwise(bounds):
        fold = fold_on(load_projection(name), path)
        fold.take(records[max(0, first - 3) : last])  # some are read again
        fold.flush()
        rows = {key.hex(): value.hex() for key, value in fold.file.scan(b"s")}
        fold.file.close()
    return rows


@pytest.mark.parametrize("name", OF_RUNS)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_a_fold_that_is_cut_anywhere_gives_the_same_rows(name: str, tmp_path: Path, cuts: list[int]) -> None:
    records = all_records()
    straight = tmp_path / "straight.state"
    discard(straight)
    expected = rows_after(name, records, straight, [])
    assert len(expected) >= 3
    path = tmp_path / "cut.state"
    discard(path)
    assert rows_after(name, records, path, [cut % len(records) for cut in cuts]) == expected


@pytest.mark.parametrize("name", OF_RUNS)
def test_the_guard_finds_nothing_impure(name: str, tmp_path: Path) -> None:
    projection = load_projection(name)
    plain = rows_after(name, all_records(), tmp_path / "plain.state", [])
    fold = fold_on(projection, tmp_path / "checked.state", call=PurityCheck(projection))
    fold.take(all_records())
    fold.flush()
    assert {key.hex(): value.hex() for key, value in fold.file.scan(b"s")} == plain
    fold.file.close()


@pytest.mark.parametrize("name", ["execution", "cognitive"])
def test_envelopes_of_one_run_fold_without_a_log(name: str, tmp_path: Path) -> None:
    projection = load_projection(name)
    codec: StateCodec[Any] = StateCodec(projection)
    for path in HISTORIES:
        records = records_of(read_history(path), 0)
        told = [record for record in records if record.event_type in (projection.event_types or ())]
        of_run = [record for record in told if record.event_type != "memory.written"]  # has rows of its own
        state = projection.fold(record.envelope for record in of_run)
        rows = rows_after(name, records, tmp_path / f"{path.name}.state", [])
        assert rows.pop((b"s" + records[0].key.encode()).hex()) == codec.encode(state).hex()
        assert bool(rows) == (len(of_run) < len(told))


def test_the_rows_are_the_same_under_every_hash_seed(tmp_path: Path) -> None:
    found = []
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.unit.projection.test_purity_check_builtin", str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] == found[2]
    assert all(len(rows) >= 3 for rows in found[0].values())


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(
        json.dumps({name: rows_after(name, all_records(), folder / f"{name}.state", []) for name in OF_RUNS})
    )


def test_what_execution_cannot_take_stops_it_and_holds_nothing_back(tmp_path: Path) -> None:
    headers = [("ce_type", b"run.started"), ("noesium_seq", b"0")]
    bad = Record(TOPIC, 0, 0, 1_000, "run", headers, b"no event", CODEC)
    fold = fold_on(load_projection("execution"), tmp_path / "execution.state")
    with pytest.raises(EventHeldError, match=r"cannot take the event at .*/0@0 \(run.started\)"):
        fold.take([bad])
    assert (fold.cursor, fold.manifest.held) == (0, 0)
    fold.file.close()
    mind = fold_on(load_projection("cognitive"), tmp_path / "cognitive.state")
    mind.take([Record(TOPIC, 0, 0, 1_000, "run", [("ce_type", b"run.requested"), headers[1]], b"", CODEC)])
    mind.flush()
    assert (mind.cursor, mind.manifest.held) == (1, 1), "any other holds it back"
    mind.file.close()
