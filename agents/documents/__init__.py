"""Documents of any origin to passages; imports nothing heavy, since it also runs in the reading processes."""
