"""Checksummed SQLite files of local state, which can be made anew from the log.

Worker and projections keep their state in such files, each with tables of its own. Concepts: the file
(manifest, checksums, one transaction per write), the claim (one process writes a file), and SQLite's
connections and errors. Open `checksummed_file.py` first.
"""
