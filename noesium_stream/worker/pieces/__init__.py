"""Answers in pieces: how they leave a worker, and how those of called runs reach it.

Concepts: the outbox of a process (pieces that wait are written together; the log may be away, and no run
waits for it), the arrivals (one reader of the stream topic for all runs that listen), and what a run's steps
see of both.

Open `outbox.py` first.
"""
