"""Handlers: agents without a graph that turn an event and a state into events, exactly once.

Concepts: the tenure (reads, folds, commits), its commits, the destinations of events, encoding,
and catching up after a takeover.

Open `tenure.py` first.
"""
