"""Projections that follow the log as members of a consumer group.

Concepts: the member (joins, polls, keeps the position) and the folds of the partitions that it owns. Open
`member.py` first.
"""
