"""Members of consumer groups on Kafka.

Concepts: the member with its thread (`subscription`), the positions and seeks of its partitions
(`positions`), the batches that it reads (`batch_reader`), the group's offsets (`group_offsets`), the owner's
callbacks on the event loop (`loop_calls`), requests of other threads (`thread_requests`) and the settings of
the client (`member_config`).

Open `subscription.py` first.
"""
