"""Recorded runs, for verification, migration and forks.

Concepts: the recorded journal (a run's records, read only), the recorded run in canonical form, the end of a
recording, and forking at a step.

Open `recorded_journal.py` first.
"""
