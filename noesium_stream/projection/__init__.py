"""Projections: local state as a pure fold over the log (RFC-0004)."""
