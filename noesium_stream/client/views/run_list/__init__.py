"""The list of runs, and the file in which a machine keeps it."""
