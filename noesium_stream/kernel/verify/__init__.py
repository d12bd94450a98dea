"""Replay of recorded runs against today's code, and the first difference.

Concepts: the verifier, the journal that answers from the recording, comparison, the difference, and state at
a step. A step is compared with its replay in `compare_step.py`; two runs in `client/operate/diff.py`.

Open `verifier.py` first.
"""
