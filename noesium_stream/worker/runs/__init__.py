"""Open runs of a partition: starting, resuming, waiting, eviction from memory, and ending.

Concepts: the run session (a run's journal), open runs, the start queue, slots (with fairness and pacing),
timers, eviction, and outcomes of effects that arrive late.

Open `open_runs.py` first; a waiting run is evicted in `eviction.py`.
"""
