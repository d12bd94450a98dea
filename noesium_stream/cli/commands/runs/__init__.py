"""Commands that start, watch, answer, check and compare runs."""
