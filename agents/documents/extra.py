"""The packages that these agents need beyond those of the package itself: the extra `agents`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from noesium_stream.errors import AgentLoadError

_PACKAGES: Final = {
    "markdown_it": "markdown-it-py",
    "pypdf": "pypdf",
    "snowballstemmer": "snowballstemmer",
    "wordllama": "wordllama",
}


def require_extra() -> None:
    """Check that the extra is installed.

    Raises:
        AgentLoadError: a package of it is missing.
    """
    missing = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise AgentLoadError(
            f"These agents read documents and need packages that are not installed: {', '.join(missing)}.",
            hint="Install the extra `agents`: pip install 'noesium-stream[agents]'",
        )
