"""Semantic versions and ranges of versions, as npm reads them.

Decision record: `nodesemver`, a port of an npm of 2015, was used before. It accepts `1.x.5` and `x.1`, which
npm refuses, refuses `1.x+build`, which npm accepts, ends `^1` at 2.0.0 instead of at 2.0.0-0, and takes
16 ms to import. So the grammar is written out here, for npm's strict mode, and tested against npm's own
fixtures (`tests/data/npm_semver`). In addition a comma between two parts means a space, and `==` means `=`.

Only short ASCII text is parsed, because both come from the log; no expression here has two adjacent parts
that match the same characters without bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from noesium_stream.errors import ConfigError
from noesium_stream.event.limits import MAX_VERSION

_MAX_NUMBER: Final = 2**53 - 1
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PART: Final = rf"(?:[0-9]*[a-zA-Z-][0-9a-zA-Z-]*|{_NUMBER})"
_PRERELEASE: Final = rf"(?:-({_PART}(?:\.{_PART})*))"
_BUILD: Final = r"\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_X: Final = rf"({_NUMBER}|[xX*])"
_NUMBERS: Final = rf"{_X}(?:\.{_X}(?:\.{_X}{_PRERELEASE}?)?)?"
_PARTIAL: Final = rf"[v=]*{_NUMBERS}"

_VERSION: Final = re.compile(rf"v?({_NUMBER})\.({_NUMBER})\.({_NUMBER}){_PRERELEASE}?(?:{_BUILD})?")
_STRIPPED: Final = re.compile(_BUILD)
_SPACES: Final = re.compile(r"\s+")
_DETACHED: Final = re.compile(r"(<=|>=|<|>|=) (?=[v=]*[0-9xX*])")
_DETACHED_SIGN: Final = re.compile(r"(~>|~|\^) ")
_HYPHEN: Final = re.compile(rf"((?:[v=] ?)*{_NUMBERS}) - ((?:[v=] ?)*{_NUMBERS})")
_CARET: Final = re.compile(rf"\^{_PARTIAL}")
_TILDE: Final = re.compile(rf"~>?{_PARTIAL}")
_SIMPLE: Final = re.compile(rf"(<=|>=|<|>|=|){_PARTIAL}")
_EXACT: Final = re.compile(r"(<=|>=|<|>|=|)(v?[0-9].*)")

Release = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SemanticVersion:
    """A parsed version; `key` orders versions, build metadata does not count."""

    release: Release
    prerelease: tuple[int | str, ...]
    key: tuple[Any, ...]

    @property
    def major(self) -> int:
        """The major version."""
        return self.release[0]

    def __str__(self) -> str:
        text = ".".join(map(str, self.release))
        return f"{text}-{'.'.join(map(str, self.prerelease))}" if self.prerelease else text


@dataclass(frozen=True, slots=True)
class Comparator:
    """One bound of a range: `<`, `<=`, `>`, `>=`, or an empty operator for equality.

    `version` None is any version.
    """

    operator: str
    version: SemanticVersion | None

    def takes(self, version: SemanticVersion) -> bool:
        """Whether a version lies within the bound; prereleases by their order alone."""
        if self.version is None:
            return True
        key, bound = version.key, self.version.key
        if self.operator == "<":
            return key < bound
        if self.operator == ">":
            return key > bound
        if self.operator == "<=":
            return key <= bound
        return key >= bound if self.operator == ">=" else key == bound

    def __str__(self) -> str:
        return "" if self.version is None else f"{self.operator}{self.version}"


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Alternatives, each of which is a list of bounds that all have to hold."""

    alternatives: tuple[tuple[Comparator, ...], ...]

    def takes(self, version: SemanticVersion) -> bool:
        """Whether a version satisfies the range.

        A prerelease does only if a bound is a prerelease of the same release.
        """
        return any(
            all(bound.takes(version) for bound in bounds)
            and (not version.prerelease or _invites(bounds, version.release))
            for bounds in self.alternatives
        )

    def __str__(self) -> str:
        return "||".join(" ".join(map(str, bounds)) for bounds in self.alternatives)


def in_range(version: str, wanted: str | None) -> bool:
    """Whether a version satisfies a range: `^1`, `~1.2`, `>=1.2 <2`, `^1 || ^3`, `1.2.3`; None takes any.

    `^1.2` takes a higher minor or patch of major 1 (a different major is incompatible); in major 0 a
    different minor is incompatible as well. `1.2` takes any patch of 1.2, `1.2.3` exactly that version, and
    `*` all but prereleases.

    Raises:
        ConfigError: the version or the range is not valid.
    """
    return wanted is None or check_range(wanted).takes(check_version(version))


def check_version(text: str) -> SemanticVersion:
    """Parse a semantic version such as `1.2.3`.

    Raises:
        ConfigError: it is not one.
    """
    try:
        return _version(text)
    except ValueError as error:
        raise ConfigError(f"{_shown(text)} is not a semantic version.", hint="Write it as 1.2.3.") from error


def check_range(text: str) -> VersionRange:
    """Parse a range of versions.

    Raises:
        ConfigError: it is not one.
    """
    try:
        return _range(text)
    except ValueError as error:
        raise ConfigError(
            f"{_shown(text)} is not a version range.",
            hint="Examples: ^1, ~1.2, '>=1.2 <2', '^1 || ^3', 1.2.3.",
        ) from error


def _invites(bounds: tuple[Comparator, ...], release: Release) -> bool:
    return any(
        bound.version is not None and bound.version.prerelease and bound.version.release == release
        for bound in bounds
    )


@lru_cache(maxsize=16_384)
def _version(text: str) -> SemanticVersion:
    found = _VERSION.fullmatch(_bounded(text).strip())
    if found is None:
        raise ValueError("not a version")
    return _made((found[1], found[2], found[3]), found[4])


def _made(numbers: tuple[str, str, str], prerelease: str | None = None) -> SemanticVersion:
    major, minor, patch = (_number(text) for text in numbers)
    parts = tuple(_identifier(part) for part in prerelease.split(".")) if prerelease else ()
    order = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in parts)
    key = (major, minor, patch, (0, *order) if parts else (1,))
    return SemanticVersion((major, minor, patch), parts, key)


def _number(text: str) -> int:
    number = int(text)
    if number > _MAX_NUMBER:
        raise ValueError("too large a number")
    return number


def _identifier(text: str) -> int | str:
    return int(text) if text.isdigit() and int(text) < _MAX_NUMBER else text


@lru_cache(maxsize=4_096)
def _range(text: str) -> VersionRange:
    plain = _bounded(text).replace(",", " ").replace("==", "=").strip()
    found = [_bounds(part.strip()) for part in _SPACES.sub(" ", plain).split("||")]
    if len(found) > 1:
        found = [bounds for bounds in found if bounds[0] != _NOTHING] or found[:1]
        found = next(([bounds] for bounds in found if bounds == (_ANY,)), found)
    return VersionRange(tuple(found))


def _bounds(part: str) -> tuple[Comparator, ...]:
    part = _STRIPPED.sub("", part).strip()
    hyphen = _HYPHEN.fullmatch(part)
    if hyphen is not None:
        made = [_lower(*hyphen.group(1, 2, 3, 4, 5)), _upper(*hyphen.group(6, 7, 8, 9, 10))]
    else:
        joined = _DETACHED_SIGN.sub(r"\1", _DETACHED.sub(r"\1", part))
        made = [bound for text in joined.split(" ") for bound in _of_text(text)]
    bounds = dict.fromkeys(_ANY if bound == _AT_LEAST_ZERO else bound for bound in made)
    if _NOTHING in bounds:
        return (_NOTHING,)
    if len(bounds) > 1:
        bounds.pop(_ANY, None)
    return tuple(bounds)


def _of_text(text: str) -> list[Comparator]:
    if not text:
        return [_ANY]
    for pattern, bounds in ((_CARET, _caret), (_TILDE, _tilde)):
        found = pattern.fullmatch(text)
        if found is not None:
            return bounds(*found.groups())
    found = _SIMPLE.fullmatch(text)
    if found is None:
        raise ValueError("not a bound")
    operator, major, minor, patch, _ = found.groups()
    if not (_is_x(major) or _is_x(minor) or _is_x(patch)):
        exact = _EXACT.fullmatch(text)  # an x-range may have any `v` and `=` before it, a version one `v`
        if exact is None:
            raise ValueError("not a bound")
        return [Comparator("" if operator == "=" else operator, _version(exact[2]))]
    if (_is_x(major) and not _is_x(minor)) or (_is_x(minor) and not _is_x(patch)):
        raise ValueError("a number after an x")
    return _x_range(operator, major, None if _is_x(minor) else minor)


def _x_range(operator: str, major: str, minor: str | None) -> list[Comparator]:
    """The bounds of `1`, `>1.2`, `<=1.x`, `*`."""
    if _is_x(major):
        return [_NOTHING if operator in ("<", ">") else _ANY]
    first, after = _first(major, minor), _after(major, minor)
    if operator == ">":
        return [Comparator(">=", _made(after))]
    if operator == ">=":
        return [Comparator(">=", _made(first))]
    if operator in ("<", "<="):
        return [_below(first if operator == "<" else after)]
    return [Comparator(">=", _made(first)), _below(after)]


def _caret(major: str, minor: str | None, patch: str | None, prerelease: str | None) -> list[Comparator]:
    if _is_x(major):
        return [_ANY]
    if minor is None or _is_x(minor):
        return [Comparator(">=", _made(_first(major, None))), _below(_after(major, None))]
    if patch is None or _is_x(patch):
        return [
            Comparator(">=", _made((major, minor, "0"))),
            _below(_after(major, minor if major == "0" else None)),
        ]
    if major != "0":
        after = _after(major, None)
    elif minor != "0":
        after = _after(major, minor)
    else:
        after = (major, minor, _next(patch))
    return [Comparator(">=", _made((major, minor, patch), prerelease)), _below(after)]


def _tilde(major: str, minor: str | None, patch: str | None, prerelease: str | None) -> list[Comparator]:
    if _is_x(major):
        return [_ANY]
    if minor is None or _is_x(minor):
        return [Comparator(">=", _made(_first(major, None))), _below(_after(major, None))]
    if patch is None or _is_x(patch):
        patch, prerelease = "0", None
    return [Comparator(">=", _made((major, minor, patch), prerelease)), _below(_after(major, minor))]


def _lower(whole: str, major: str, minor: str | None, patch: str | None, pre: str | None) -> Comparator:
    if _is_x(major):
        return _ANY
    if minor is None or _is_x(minor):
        return Comparator(">=", _made(_first(major, None)))
    if patch is None or _is_x(patch):
        return Comparator(">=", _made((major, minor, "0")))
    return Comparator(">=", _version(whole))


def _upper(whole: str, major: str, minor: str | None, patch: str | None, pre: str | None) -> Comparator:
    if _is_x(major):
        return _ANY
    if minor is None or _is_x(minor):
        return _below(_after(major, None))
    if patch is None or _is_x(patch):
        return _below(_after(major, minor))
    return Comparator("<=", _made((major, minor, patch), pre) if pre else _version(whole))


def _is_x(part: str | None) -> bool:
    return part is None or part in "xX*"


def _first(major: str, minor: str | None) -> tuple[str, str, str]:
    return (major, minor or "0", "0")


def _after(major: str, minor: str | None) -> tuple[str, str, str]:
    """The first release behind a major or a minor version."""
    return (_next(major), "0", "0") if minor is None else (major, _next(minor), "0")


def _next(number: str) -> str:
    return str(_number(number) + 1)


def _below(numbers: tuple[str, str, str]) -> Comparator:
    return Comparator("<", _made(numbers, "0"))


_ANY: Final = Comparator("", None)
_NOTHING: Final = _below(("0", "0", "0"))
_AT_LEAST_ZERO: Final = Comparator(">=", _made(("0", "0", "0")))


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
