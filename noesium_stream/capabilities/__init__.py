"""Capabilities: their registry, and the choice of a provider (RFC-0005)."""
