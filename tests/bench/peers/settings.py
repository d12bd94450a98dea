"""Sizes of the bench of peers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PeerSettings:
    """Sizes of everything; the defaults are those of a full run.

    `runs` of two steps with `at_once` in flight, after `warm` others; `lone` runs of ten steps; `open_runs`
    when the worker is killed; `conversations` of `messages` messages of `message_bytes`; `events` in as many
    `partitions` that the handlers take; `rounds`, of which the median counts.
    """

    rounds: int = 3
    runs: int = 2_000
    at_once: int = 200
    warm: int = 400
    lone: int = 30
    open_runs: int = 100
    conversations: int = 20
    messages: int = 100
    message_bytes: int = 500
    events: int = 300_000
    partitions: int = 4


QUICK = PeerSettings(
    rounds=1,
    runs=40,
    at_once=10,
    warm=10,
    lone=3,
    open_runs=5,
    conversations=2,
    messages=5,
    events=2_000,
    partitions=2,
)
"""Small numbers, which show that everything works and say nothing about speed."""
