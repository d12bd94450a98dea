"""The parts that the SQLite and the memory log share: consumer groups and wake-up inside this package.

Concepts: `EmbeddedLog` (the port over a store of committed records), `EmbeddedGroup` (a consumer group whose
members share partitions by leases instead of a broker's coordinator) and `Wakeup` (waiting for a change).

Open `log.py` first.
"""
