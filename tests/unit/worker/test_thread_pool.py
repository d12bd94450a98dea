"""A worker lets the threads of the log's client have the interpreter soon."""

from __future__ import annotations

import sys

import pytest

from noesium_stream.worker.thread_pool import SWITCH_S, take_turns_sooner


@pytest.mark.parametrize(("before", "after"), [(0.005, SWITCH_S), (SWITCH_S / 2, SWITCH_S / 2)])
def test_threads_wait_no_longer_than_a_worker_wants_and_what_is_sooner_stays(before: float, after: float):
    found = sys.getswitchinterval()
    try:
        sys.setswitchinterval(before)
        take_turns_sooner()
        assert sys.getswitchinterval() == pytest.approx(after)
    finally:
        sys.setswitchinterval(found)
