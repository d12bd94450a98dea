"""Dry runs: a fork executed in memory, up to the results that only the outside world could give.

`dry_run.py` executes, `dry_run_journal.py` answers from the recording and refuses new calls. Open
`dry_run.py` first.
"""
