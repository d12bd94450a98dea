"""A rollout that has stopped half way: `noesium workers` says what to do about what waits."""

from __future__ import annotations

from noesium_stream.cli.commands.workers import _below
from noesium_stream.client import OwnedPartition


def owned(held_up: int, carried_by: tuple[str, ...] = ()) -> OwnedPartition:
    return OwnedPartition(
        "orders", "inbox", 0, "host/1", 3, 0, 2, None, "1", held_up, ("orders 2.0.0 (abcd)",), carried_by
    )


def test_the_owner_is_to_be_replaced_where_others_carry_what_its_runs_wait_for():
    assert _below(owned(0)) == ""
    assert _below(owned(2, ("host/2", "host/3"))) == (
        "2 held up, waiting for orders 2.0.0 (abcd); carried by host/2, host/3: replace host/1 by a worker "
        "that carries it, too (--also)"
    )


def test_a_worker_is_to_be_started_where_nobody_carries_it():
    assert _below(owned(1)) == (
        "1 held up, waiting for orders 2.0.0 (abcd); carried by nobody: start a worker that does (--also)"
    )
