"""Snapshots of projections in an object store, pushed by one machine and pulled by another.

Concepts: the object store (any fsspec URL), the manifest of a push, push, and pull with verification. Open
`push.py` first.
"""
