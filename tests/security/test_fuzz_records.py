"""Mutated records of every standard type end no worker, stop none, and hold up no honest run.

A million of them, in half an hour:

    pytest tests/security/test_fuzz_records.py -m soak -n 0 -s
"""

from __future__ import annotations

import pytest

from tests.security.fuzz_records import Fuzzer, fuzz


@pytest.mark.parametrize("url", ["memory://", "sqlite://"])
async def test_some_thousands_of_mutated_records_stop_nothing(url: str) -> None:
    found = await fuzz(2_000, seed=7, url=url)
    assert found["records"] == 2_000
    assert found["honest runs"] == 4
    assert found["dead letters"] > 200


def test_the_same_seed_gives_the_same_records() -> None:
    one, two = Fuzzer(3), Fuzzer(3)
    assert [one.record() for _ in range(200)] == [two.record() for _ in range(200)]


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
async def test_a_million_mutated_records_stop_nothing() -> None:
    found = await fuzz(1_000_000, seed=1)
    print(found)
    assert found["records"] == 1_000_000
