"""The watcher of agents' health and of circuits: one process at a time, fenced."""
