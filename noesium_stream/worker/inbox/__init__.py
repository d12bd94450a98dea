"""Admission: what becomes of an inbox record.

Concepts: the decider (a pure function of the partition's state), the admission (the loop of a tenure around
it), the turns (of the commands that are queued), the batch (decisions of one commit and what follows from
them) and its commits, deferred requests (for a worker that can take them) and the successor (the next
generation of the agent's topics).

Open `decide.py` first: an inbox record is judged there. The loop is in `admission.py`.
"""
