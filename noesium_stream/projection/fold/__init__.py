"""The fold of one partition: events in, rows and a cursor out, in one transaction.

Concepts: `PartitionFold`, changed rows, pending rows (not written yet), the flush schedule, dead letters,
keys that are held behind a poison event, and redrive.

Open `partition_fold.py` first; a projection's dead letter is held in `held_letters.py`.
"""
