"""Views of a log for people and programs: runs, workers, approvals and unresolved effects.

Open `runs.py` first.
"""
