"""LangGraph graphs made durable: each node wrapped, each step committed (RFC-0003).

Concepts: `DurableGraph`, the durable node (entered, body, completed), retries, resuming after a crash.

Open `durable_graph.py` first.
"""
