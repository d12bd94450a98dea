"""LangGraph's retry policies: whether a failed node is retried, and after which pause."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from langgraph.errors import NodeTimeoutError
from langgraph.types import RetryPolicy

from noesium_stream.clock import derived_id
from noesium_stream.errors import KernelError, NodeExecutionError, RecordTooLargeError
from noesium_stream.kernel.step.position import Place


class NodeTimedOutError(NodeExecutionError):
    """A node exceeded its timeout; `theirs` is LangGraph's error for this, for retry policies."""

    def __init__(self, node: str, limit_s: float) -> None:
        super().__init__(
            f"The node {node} had not ended after {limit_s:g} s.",
            hint="Raise its timeout, or bound what it waits for.",
        )
        self.theirs = NodeTimeoutError(node, limit_s, kind="run", run_timeout=limit_s)


_NOT_RETRIED: Final = (KernelError, RecordTooLargeError)
"""Errors that the same input causes again."""


def pause_ms(policies: Sequence[RetryPolicy], error: Exception, attempt: int, step: Place) -> int | None:
    """The wait before the next attempt; None: no retry. The jitter is the step's own."""
    policy = next((policy for policy in policies if _applies(policy, error)), None)
    if policy is None or attempt >= policy.max_attempts:
        return None
    if isinstance(error, _NOT_RETRIED) and not isinstance(error, NodeTimedOutError):
        return None
    pause = min(policy.max_interval, policy.initial_interval * policy.backoff_factor ** (attempt - 1))
    if policy.jitter:
        pause += random.Random(derived_id(step.run_id, str(step.key), "jitter", str(attempt))).random()
    return round(pause * 1000)


def _applies(policy: RetryPolicy, error: Exception) -> bool:
    wanted: Any = policy.retry_on
    if isinstance(error, NodeTimedOutError):
        error = error.theirs
    if isinstance(wanted, type):
        return isinstance(error, wanted)
    if isinstance(wanted, Sequence):
        return isinstance(error, tuple(wanted))
    return bool(wanted(error))
