"""The committed schema files, and their allowed changes.

Concepts: the files in `schemas/` (generated from the event classes) and compatibility of two versions. Open
`files.py` first.
"""
