"""Operator tasks: redrive dead letters, replay and fork runs, find out why a run does not go on.

Two runs are compared in `diff.py`. Open `dead_letters.py` first.
"""
