"""Annotations of graph nodes (RFC-0003 §7, RFC-1001 §7.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from noesium_stream.errors import KernelError
from noesium_stream.kernel.reference import Undo, reference
from noesium_stream.kernel.retry import Retries

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "_kernel_meta"
_COMPENSATION: Final = "_kernel_compensation"


@dataclass(frozen=True, slots=True)
class NodeMeta:
    """What the kernel knows of a node: a deterministic one has no sources of entropy.

    `declared` tells the word of the author from the default, which is not relied on: then the code has to
    show that the node only computes (see `Durability`).
    """

    deterministic: bool = True
    entropy_sources: tuple[str, ...] = ()
    timeout_s: float | None = None
    declared: bool = False
    compensation: str | None = None


def kernel_node(
    *,
    deterministic: bool = True,
    entropy_sources: Sequence[str] = (),
    timeout: timedelta | float | None = None,
    compensate: Undo | None = None,
) -> Callable[[F], F]:
    """Say of a node whether it is deterministic, and if not, where its entropy comes from.

    `timeout` (a number: seconds) bounds one attempt of the body, also of a sync node: that one's thread goes
    on, and nothing that it returns or asks for counts any more.

    `compensate` undoes the whole node, should the run fail or be cancelled after it: a function of a module,
    or a method of the agent (itself or its name), called with the node's recorded delta; or the name of a
    graph. See `Step.effect`.

    The function itself stays as it is; the annotation travels into `kernel.node.entered`.

    Raises:
        ValueError: a deterministic node cannot have sources of entropy.
        KernelError: another process could not find the compensation by its name; `timeout` is no time.
    """
    if deterministic and entropy_sources:
        raise ValueError("a deterministic node has no sources of entropy: say deterministic=False")
    seconds = None if timeout is None else _seconds(timeout, "kernel_node")
    undo = None if compensate is None else reference(compensate, "a node", defined=False)
    meta = NodeMeta(deterministic, tuple(entropy_sources), seconds, declared=True, compensation=undo)

    def annotate(function: F) -> F:
        setattr(function, _ATTRIBUTE, meta)
        return function

    return annotate


@dataclass(frozen=True, slots=True)
class CompensationMeta:
    """How a function that undoes is called: how often, and how long it may take."""

    retries: Retries | None = None
    timeout: timedelta | None = None


def kernel_compensation(
    *, retries: Retries | None = None, timeout: timedelta | float | None = None
) -> Callable[[F], F]:
    """Say of a function that undoes how often it is tried before a person is asked, and how long it may take.

    Each try that is recorded as failed is followed by one with another idempotency key. One that has not
    ended after `timeout` has failed if it is pure or idempotent; of an external one it is not known what came
    of it, and a person decides at once. Without this a function is called once, for as long as it takes.

    Raises:
        KernelError: `timeout` is neither a timedelta nor a number of seconds, or not above zero.
    """
    limit = None if timeout is None else timedelta(seconds=_seconds(timeout, "kernel_compensation"))
    meta = CompensationMeta(retries, limit)

    def annotate(function: F) -> F:
        setattr(function, _COMPENSATION, meta)
        return function

    return annotate


def _seconds(timeout: Any, who: str) -> float:
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise KernelError(
            f"{who} was given timeout={timeout!r}, which is no time above zero.",
            hint="Give a timedelta, or seconds as a number; leave it out for no timeout.",
        )
    return float(seconds)


def compensation_meta(function: Any) -> CompensationMeta:
    """The annotation of a function that undoes, or the default."""
    meta = getattr(function, _COMPENSATION, None)
    return meta if isinstance(meta, CompensationMeta) else CompensationMeta()


def node_meta(bound: Any) -> NodeMeta:
    """The annotation of a node's LangGraph runnable, or the default (deterministic)."""
    for name in ("afunc", "func"):
        meta = getattr(getattr(bound, name, None), _ATTRIBUTE, None)
        if isinstance(meta, NodeMeta):
            return meta
    return NodeMeta()
