"""The state of an owned partition: a fold over its journal and inbox, in one SQLite file.

Concepts: `PartitionState` (the fold), the journal-record fields that it uses, known runs, the command queue,
skipped inbox offsets, and reading it back (`restore`).

Open `partition_state.py` first.
"""
