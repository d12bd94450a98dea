"""Projections that come with the package (RFC-0004 §4.3, RFC-1001 §8.3)."""
