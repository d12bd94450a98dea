"""A damaged state file is found out, or does no harm: never another state.

Every 21st bit of a file of 9.5 KiB, 2,000 bits of a larger one, its every 4,096-byte truncation, and what
SQLite leaves beside the file of a killed process. Every bit of the small file, and many more of the others:

    pytest tests/property/test_state_flips.py -m "soak or not soak" -s
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.flipping import HEAD, KEYS, SCENARIOS, Trial, records, workplace


@pytest.fixture
def small() -> Iterator[Trial]:
    """A file of less than 10 KiB."""
    with workplace(512) as folder:
        trial = Trial(folder, records(26, 110), records(26, 12, start=110), batch=10)
        assert 4096 < len(trial.data) < 10_240
        yield trial


@pytest.fixture
def large() -> Iterator[Trial]:
    """A file of more than fifty pages."""
    with workplace() as folder:
        trial = Trial(folder, records(1500, 6000), records(1500, 40, start=6000), batch=500)
        assert len(trial.data) > 50 * 4096
        yield trial


EVERY_BIT = pytest.param(1, marks=pytest.mark.soak)


@pytest.mark.parametrize("step", [21, EVERY_BIT])
def test_any_bit_of_a_small_file_may_be_another(small: Trial, step: int) -> None:
    bits = range(0, len(small.data) * 8, step)
    for bit in bits:
        small.flip(bit)
    assert small.detected + small.harmless == len(bits)
    assert small.detected > len(bits) * 0.3
    print(f"{small.detected:,} detected, {small.harmless:,} harmless")


def test_a_large_file_may_be_cut_anywhere(large: Trial) -> None:
    for length in range(0, len(large.data), 4096):
        large.run(large.data[:length], b"", f"cut to {length}")
    assert large.detected > 10


def test_bits_of_a_large_file_may_be_others(large: Trial) -> None:
    chance = random.Random(6)
    for _ in range(2000):
        large.flip(chance.randrange(len(large.data) * 8))
    assert large.detected > 500
    print(f"{large.detected:,} detected, {large.harmless:,} harmless")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_what_the_pages_of_a_large_file_say_of_themselves_may_be_wrong(large: Trial) -> None:
    for page in range(0, len(large.data), 4096):
        first = 100 if page == 0 else 0
        for bit in range(first * 8, (first + 40) * 8):  # its header, and where its first cells lie
            large.flip(page * 8 + bit)
    print(f"{large.detected:,} detected, {large.harmless:,} harmless")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_a_killed_process_left_may_be_damaged(scenario: str) -> None:
    wal_trial(scenario, flips=150)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_a_killed_process_left_may_be_damaged_anywhere(scenario: str) -> None:
    wal_trial(scenario, flips=5000)


def wal_trial(scenario: str, flips: int) -> None:
    chance = random.Random(scenario)
    with workplace(512) as folder:
        trial = Trial(folder, records(KEYS, HEAD), records(KEYS, 40, start=HEAD))
        trial.step = 1  # more commits than were lost
        left = folder / "left"
        left.mkdir()
        command = [sys.executable, "-m", "tests.support.flipping", str(left), scenario]
        assert subprocess.run(command, check=False).returncode == -9
        trial.data = (left / "source.state").read_bytes()
        trial.wal = Path(f"{left}/source.state-wal").read_bytes()
        trial.run(trial.data, trial.wal, "as it was left")
        assert trial.harmless == 1
        frames = (len(trial.wal) - 32) // (512 + 24)
        for frame in range(0, frames, max(1, frames * 4 // flips)):
            for length in (32 + frame * 536, 32 + frame * 536 + 300):
                trial.run(trial.data, trial.wal[:length], f"cut to {length}")
        for _ in range(flips):
            trial.flip_wal(chance.randrange(len(trial.wal) * 8))
        for _ in range(flips):
            trial.flip(chance.randrange(len(trial.data) * 8))
        print(f"{scenario}: {trial.detected:,} detected, {trial.harmless:,} harmless")
