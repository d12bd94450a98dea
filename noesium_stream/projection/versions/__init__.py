"""Projections across versions and positions.

Concepts: migrations of stored state by an event, opening a state of another version, and the state until or
at an earlier position. Open `open_migrated.py` first.
"""
