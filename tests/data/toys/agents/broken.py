"""Fails to import."""

import a_module_that_is_not_there  # noqa: F401

AGENT = None
