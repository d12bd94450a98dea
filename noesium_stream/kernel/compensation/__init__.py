"""Undoing the effects of a run that fails or is cancelled (sagas).

Concepts: the plan (what to undo, in which order) and the saga that carries it out.

Open `saga.py` first.
"""
