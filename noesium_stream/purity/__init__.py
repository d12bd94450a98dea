"""What a pure function may not read, and whose doing it is when it is read."""
