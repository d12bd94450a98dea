"""Versions and ranges mean what npm says: its own fixtures, in its strict mode.

Left out are rows with npm's options `loose` and `includePrerelease`, which are not offered here, and texts
above the bound of a version on the log (`MAX_VERSION`), which have to be refused.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.capabilities.version import (
    Comparator,
    SemanticVersion,
    VersionRange,
    check_range,
    check_version,
    in_range,
)
from noesium_stream.errors import ConfigError
from noesium_stream.event.limits import MAX_VERSION

FIXTURES = json.loads((Path(__file__).parents[2] / "data" / "npm_semver" / "fixtures.json").read_text())


def rows(name: str) -> list[Any]:
    plain = [row for row in FIXTURES[name] if not isinstance(row[-1], dict)]
    return [row for row in plain if all(len(text) <= MAX_VERSION for text in row if isinstance(text, str))]


def is_version(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(check_version(text))
    except ConfigError:
        return False


def canonical(text: str) -> str | None:
    try:
        return str(check_range(text)) or "*"
    except ConfigError:
        return None


@pytest.mark.parametrize(("wanted", "version"), rows("range-include"))
def test_a_range_takes_what_npm_takes(wanted: str, version: str) -> None:
    assert in_range(version, wanted)


@pytest.mark.parametrize(("wanted", "version"), rows("range-exclude"))
def test_a_range_excludes_what_npm_excludes(wanted: str, version: object) -> None:
    assert not is_version(version) or not in_range(str(version), wanted)


@pytest.mark.parametrize(("wanted", "meant"), rows("range-parse"))
def test_a_range_is_read_as_npm_reads_it(wanted: str, meant: str | None) -> None:
    assert canonical(wanted) == meant


def test_a_range_above_the_bound_of_a_version_is_refused() -> None:
    long = [row[0] for row in FIXTURES["range-parse"] if len(row[0]) > MAX_VERSION]
    assert len(long) >= 4
    assert {canonical(wanted) for wanted in long} == {None}


@pytest.mark.parametrize(("greater", "less"), rows("comparisons"))
def test_versions_are_ordered_as_npm_orders_them(greater: str, less: str) -> None:
    assert check_version(greater).key > check_version(less).key


@pytest.mark.parametrize(("one", "other"), [row for row in rows("equality") if is_version(row[1])])
def test_versions_are_equal_as_npm_says(one: str, other: str) -> None:
    assert check_version(one).key == check_version(other).key
    assert in_range(other, one)


@pytest.mark.parametrize(("text", "major", "minor", "patch", "prerelease", "build"), rows("valid-versions"))
def test_a_version_is_read_as_npm_reads_it(
    text: str, major: int, minor: int, patch: int, prerelease: list[object], build: list[str]
) -> None:
    version = check_version(text)
    assert (version.release, list(version.prerelease)) == ((major, minor, patch), prerelease)
    assert str(check_version(str(version))) == str(version)


@pytest.mark.parametrize("text", [row[0] for row in FIXTURES["invalid-versions"]])
def test_what_is_no_version_to_npm_is_refused(text: str) -> None:
    assert not is_version(text)


def outside(version: SemanticVersion, wanted: VersionRange, above: bool) -> bool:
    """npm's `outside`, by the bounds of the range: below all of it, or above all of it."""
    operators = (">", ">=") if above else ("<", "<=")
    beyond = (lambda a, b: a > b) if above else (lambda a, b: a < b)
    if wanted.takes(version):
        return False
    for bounds in wanted.alternatives:
        real = [bound if bound.version else Comparator(">=", check_version("0.0.0")) for bound in bounds]
        keys = [(bound.version.key, bound.operator) for bound in real if bound.version]
        high = low = keys[0]
        for one in keys[1:]:
            if beyond(one[0], high[0]):
                high = one
            elif beyond(low[0], one[0]):
                low = one
        if high[1] in operators:
            return False
        if low[1] in ("", operators[0]) and not beyond(version.key, low[0]):
            return False
        if low[1] == operators[1] and beyond(low[0], version.key):
            return False
    return True


@pytest.mark.parametrize(("name", "above", "is_outside"), [
    ("version-gt-range", True, True),
    ("version-lt-range", False, True),
    ("version-not-gt-range", True, False),
    ("version-not-lt-range", False, False),
])  # fmt: skip
def test_bounds_are_where_npm_has_them(name: str, above: bool, is_outside: bool) -> None:
    found = [
        (wanted, version)
        for wanted, version in rows(name)
        if outside(check_version(version), check_range(wanted), above) is not is_outside
    ]
    assert found == []


def test_ranges_that_npm_says_meet_have_bounds_that_meet() -> None:
    """Of `range-intersection`: those that share a version among the ends of their bounds, and no others."""
    found = []
    for one, other, meet in rows("range-intersection"):
        ranges = check_range(one), check_range(other)
        ends = {
            bound.version
            for wanted, bounds in ((w, b) for w in ranges for b in w.alternatives)
            for bound in bounds
            if bound.version is not None
        }
        near = {
            check_version(f"{end.release[0]}.{end.release[1]}.{max(0, end.release[2] + step)}")
            for end, step in product(ends | {check_version("0.0.0")}, (-1, 0, 1))
        } | ends
        if any(all(wanted.takes(version) for wanted in ranges) for version in near) is not meet:
            found.append((one, other, meet))
    assert found == []
