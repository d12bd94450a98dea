"""Moving open runs to another version of their graph.

Concepts: `Migration` (the user's declaration), the plan (whether a move is safe), the walk over recorded
steps, and the move itself.

Open `migration.py` first.
"""
