"""What is the same in all plays is worked out once: it would be a tenth of what a play costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final
from unittest.mock import patch

from noesium_stream.agent import base
from noesium_stream.event import catalogue

_graph_ref: Final = cache(base.graph_ref)
_durable_graph: Final = cache(base.DurableGraph)
_class_schema: Final = cache(catalogue.class_schema)


@contextmanager
def worked_out_once() -> Iterator[None]:
    """Graphs behind the journal, which hold nothing of a run; what tells graphs from one another, for which
    they are drawn; schemas of agents' events.
    """
    with (
        patch.object(base, "DurableGraph", _durable_graph),
        patch.object(base, "graph_ref", _graph_ref),
        patch.object(catalogue, "class_schema", _class_schema),
    ):
        yield
