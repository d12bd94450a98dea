"""The local state of a projection: one checksummed SQLite file for each topic partition.

Concepts: the state file and its manifest (versions, cursor, topic id), rows with checksums, their codec,
snapshots, and atomic replacement of files. Open `state_file.py` first.
"""
