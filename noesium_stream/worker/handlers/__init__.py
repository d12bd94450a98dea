"""Handlers: agents without a graph that turn an event and a state into events, exactly once.

Concepts: the tenure (reads, folds, commits), its commits, the destinations of events, encoding,
catching up after a takeover, and repeated events.

Open `tenure.py` first.
"""
