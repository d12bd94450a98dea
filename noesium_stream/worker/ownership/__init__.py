"""Taking partitions over and giving them up, for agents with runs and for handlers.

Concepts: the assignment by the consumer group, the owner (takes a partition, loses it, takes it again), the
tenure (what an ownership consists of, dropped whole) and the grace that calls under way get at the end.

Open `owner.py` first.
"""
