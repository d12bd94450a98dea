"""Stored projections: reading states back without following the log.

Concepts: the folder (one file per projection, version and partition), `StoredProjection` (rows of all
partitions, merged) and export. Open `stored_projection.py` first.
"""
