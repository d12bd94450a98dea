"""What tells one version of a graph from another (RFC-0003 §13)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from noesium_stream.event.standard import GraphRef


def graph_ref(graph: CompiledStateGraph[Any, Any, Any, Any], graph_id: str, version: str) -> GraphRef:
    """What a run is pinned to: the fingerprint covers the graph's nodes, edges and channels."""
    drawn = graph.get_graph()
    shape = {
        "nodes": sorted(drawn.nodes),
        "edges": sorted([edge.source, edge.target, str(edge.data), edge.conditional] for edge in drawn.edges),
        "channels": sorted((name, type(channel).__name__) for name, channel in graph.channels.items()),
    }
    digest = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()
    return GraphRef(graph_id=graph_id, version=version, fingerprint=digest[:32])
