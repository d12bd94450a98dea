"""Versions and ranges of versions: npm's syntax and meaning, through `nodesemver`.

Only short ASCII text is passed to its regular expressions and its `int()`, because both come from the log.
`nodesemver` is imported on first use, because that takes long and most commands compare no versions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from noesium_stream.errors import ConfigError
from noesium_stream.event.limits import MAX_VERSION

if TYPE_CHECKING:
    from nodesemver import Range, SemVer


def in_range(version: str, wanted: str | None) -> bool:
    """Whether a version satisfies a range: `^1`, `~1.2`, `>=1.2 <2`, `^1 || ^3`, `1.2.3`; None takes any.

    `^1.2` takes a higher minor or patch of major 1 (a different major is incompatible); in major 0 a
    different minor is incompatible as well. `1.2` takes any patch of 1.2, `1.2.3` exactly that version. A
    comma between two parts means the same as a space.

    Raises:
        ConfigError: the version or the range is not valid.
    """
    if wanted is None or (len(wanted) <= MAX_VERSION and wanted.strip() in ("", "*")):
        return True
    return bool(_range(wanted).test(check_version(version)))


def check_version(text: str) -> SemVer:
    """Parse a semantic version such as `1.2.3`.

    Raises:
        ConfigError: it is not one.
    """
    from nodesemver import SemVer  # noqa: PLC0415

    try:
        return SemVer(_bounded(text), loose=False, include_prerelease=False)
    except ValueError as error:
        raise ConfigError(f"{_shown(text)} is not a semantic version.", hint="Write it as 1.2.3.") from error


@lru_cache(maxsize=1024)
def _range(text: str) -> Range:
    from nodesemver import Range  # noqa: PLC0415

    try:
        return Range(_bounded(text).replace(",", " ").replace("==", "=").strip(), loose=False)
    except ValueError as error:
        raise ConfigError(
            f"{_shown(text)} is not a version range.",
            hint="Examples: ^1, ~1.2, '>=1.2 <2', '^1 || ^3', 1.2.3.",
        ) from error


def _bounded(text: str) -> str:
    """The text, if it is short enough for the parser.

    Raises:
        ValueError: it is too long, or not ASCII.
    """
    if len(text) > MAX_VERSION or not text.isascii():
        raise ValueError("too long, or not ASCII")
    return text


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_VERSION else f"{text[:40]}…")
