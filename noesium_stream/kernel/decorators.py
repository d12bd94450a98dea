"""Annotations of graph nodes (RFC-0003 §7, RFC-1001 §7.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError, KernelError
from noesium_stream.kernel.callable_reference import MARK, Undo, reference
from noesium_stream.kernel.retry import Retries

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_ATTRIBUTE = "_kernel_meta"


@dataclass(frozen=True, slots=True)
class NodeMeta:
    """A node's declarations; a deterministic node has no sources of entropy."""

    deterministic: bool = True
    entropy_sources: tuple[str, ...] = ()
    timeout_s: float | None = None
    compensation: str | None = None


def kernel_node(
    *,
    deterministic: bool = True,
    entropy_sources: Sequence[str] = (),
    timeout: Duration | None = None,
    compensate: Undo | None = None,
) -> Callable[[F], F]:
    """Declare whether a node is deterministic, and if not, its sources of entropy.

    `timeout` (a number: seconds) limits one attempt of the body, also of a sync node: its thread goes on, but
    its result and its further requests are ignored.

    `compensate` undoes the whole node if the run fails or is cancelled afterwards: a function of a module,
    or a method of the agent (itself or its name), called with the node's recorded delta; or the name of a
    graph. See `Step.effect`.

    The function itself stays unchanged; the annotation is recorded in `kernel.node.entered`.

    Raises:
        ValueError: a deterministic node cannot have sources of entropy.
        KernelError: another process could not find the compensation by its name, or `timeout` is not valid.
    """
    if deterministic and entropy_sources:
        raise ValueError("a deterministic node has no sources of entropy: say deterministic=False")
    seconds = None if timeout is None else _seconds(timeout, "kernel_node")
    undo = None if compensate is None else reference(compensate, "a node", defined=False)
    meta = NodeMeta(deterministic, tuple(entropy_sources), seconds, compensation=undo)

    def annotate(function: F) -> F:
        setattr(function, _ATTRIBUTE, meta)
        return function

    return annotate


@dataclass(frozen=True, slots=True)
class CompensationMeta:
    """The retries and the timeout of a compensation function."""

    retries: Retries | None = None
    timeout: timedelta | None = None


def kernel_compensation(
    *, retries: Retries | None = None, timeout: Duration | None = None
) -> Callable[[T], T]:
    """Declare a function or a compiled graph as a compensation, with its retries and its timeout.

    What an effect names as its `compensate` has to be declared: a name from a log is called only then. After
    the retries a person decides; without any, it is called once.

    Each retry after a recorded failure has another idempotency key. An attempt that exceeds `timeout` has
    failed if it is pure or idempotent; the outcome of an external one is unknown, and a person decides at
    once.

    Raises:
        KernelError: `timeout` is neither a timedelta nor a number of seconds, or not above zero.
    """
    limit = None if timeout is None else timedelta(seconds=_seconds(timeout, "kernel_compensation"))
    meta = CompensationMeta(retries, limit)

    def annotate(function: T) -> T:
        setattr(function, MARK, meta)
        return function

    return annotate


def _seconds(timeout: Duration, who: str) -> float:
    try:
        return in_seconds(timeout, "timeout", positive=True)
    except ConfigError as error:
        raise KernelError(
            f"{who} was given {error.message}",
            hint="Give a timedelta, or a number of seconds, above zero; leave it out for no timeout.",
        ) from error


def compensation_meta(function: Any) -> CompensationMeta:
    """The annotation of a compensation function, or the default."""
    meta = getattr(function, MARK, None)
    return meta if isinstance(meta, CompensationMeta) else CompensationMeta()


def node_meta(bound: Any) -> NodeMeta:
    """The annotation of a node's LangGraph runnable, or the default (deterministic)."""
    for name in ("afunc", "func"):
        meta = getattr(getattr(bound, name, None), _ATTRIBUTE, None)
        if isinstance(meta, NodeMeta):
            return meta
    return NodeMeta()
