"""The embedded default: a log in one SQLite file, durable, for several processes on one machine.

Concepts: a chunk (one row for each commit and partition), the writer's epoch (a row that fences), wake-up (a
watch on the write-ahead log) and group leases (rows with an end).

Open `store.py` first. A commit is in `writer.py`, the wake-up of readers in `wake.py`, groups in `group.py`,
and the judgement of leases in `leases.py`.
"""
