"""A strict log in memory for tests, with Kafka's fencing, aborts and held-back readers.

Concepts: `MemoryStore` (partitions, transactions, last stable offset) and its consumer groups.

Open `store.py` first.
"""
