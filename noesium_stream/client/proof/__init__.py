"""Exported runs: a file that proves what a run did, on a machine that sees no log.

Concepts: the form of the file, the export from a log, the checks without one, and what the checked records
say. Open `proof_file.py` first.
"""
