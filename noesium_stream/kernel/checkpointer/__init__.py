"""LangGraph checkpoints on the log, as deltas.

Concepts: `LogCheckpointer`, the delta against the parent, the fold that restores checkpoints from deltas,
values and their codec, and the thread that serves synchronous calls.

Open `log_checkpointer.py` first.
"""
