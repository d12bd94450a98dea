"""One module per format; each has `parse(data, path) -> Document`."""
