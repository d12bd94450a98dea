"""The guarded HTTP client of all tools that call the network (RFC-2004)."""
