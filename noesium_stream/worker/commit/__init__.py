"""Group commit of a partition: many steps in one transaction of its fenced writer.

Concepts: the partition writer (epoch, fencing, loss), the committer (all ready records go into one
transaction) and its submissions (records that belong together, and their outcome).

Open `committer.py` first.
"""
