"""Commands that fold the log into local state, and read, copy and repair that state."""
