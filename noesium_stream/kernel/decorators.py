"""Annotations of graph nodes (RFC-0003 §7, RFC-1001 §7.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "_kernel_meta"


@dataclass(frozen=True, slots=True)
class NodeMeta:
    """What the kernel knows of a node: a deterministic one has no sources of entropy."""

    deterministic: bool = True
    entropy_sources: tuple[str, ...] = ()


def kernel_node(*, deterministic: bool = True, entropy_sources: Sequence[str] = ()) -> Callable[[F], F]:
    """Say of a node whether it is deterministic, and if not, where its entropy comes from.

    The function itself stays as it is; the annotation travels into `kernel.node.entered`.

    Raises:
        ValueError: a deterministic node cannot have sources of entropy.
    """
    if deterministic and entropy_sources:
        raise ValueError("a deterministic node has no sources of entropy: say deterministic=False")
    meta = NodeMeta(deterministic, tuple(entropy_sources))

    def annotate(function: F) -> F:
        setattr(function, _ATTRIBUTE, meta)
        return function

    return annotate


def node_meta(bound: Any) -> NodeMeta:
    """The annotation of a node's LangGraph runnable, or the default (deterministic)."""
    for name in ("afunc", "func"):
        meta = getattr(getattr(bound, name, None), _ATTRIBUTE, None)
        if isinstance(meta, NodeMeta):
            return meta
    return NodeMeta()
