"""STRICT mode: deterministic nodes are checked, before and while they run.

Concepts: the graph check (reads code and edges), the keys that a node writes, nodes that run at the same
time, and the guard that finds entropy at run time.

Open `guard.py` first.
"""
