"""Definitions of tools on the log: which are registered, which are accepted, and what has changed."""
