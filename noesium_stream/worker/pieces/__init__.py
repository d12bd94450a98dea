"""Answers in pieces: how they leave a worker.

Concepts: the outbox of a process (pieces that wait are written together; the log may be away, and no run
waits for it), and what a run's steps see of it.

Open `outbox.py` first.
"""
