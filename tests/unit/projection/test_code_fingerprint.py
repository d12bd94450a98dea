"""What the code of a projection is: the same in every process, another one when it changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.code_fingerprint import differs, fingerprint
from noesium_stream.projection.compose import compose
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.stored.stored_projection import (
    About,
    StoredProjection,
    describe,
    open_stored_projection,
)
from tests.support.attach import Numbers, Sums
from tests.support.events import catalogue, counted

SOURCE = '''
from noesium_stream import BaseProjection


class Base(BaseProjection[int]):
    """What they have in common."""

    def initial_state(self):
        return 0


class Counts(Base):
    """Counts."""

    name = "counts"
    event_types = ("demo.counted",)

    def key(self, event):
        return "a" if event.payload["n"] in {"one", "two", "three", "four"} else None

    def apply(self, state, event):
        return state + 1  # one more
'''


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=2", catalogue=catalogue())
    await log.append([counted(n, f"k{n}") for n in range(10)])
    yield log
    await log.close()


def load(reference: str) -> Numbers:
    raise AssertionError(f"{reference} is asked for")


async def folded(log: EventLog, folder: Path) -> StoredProjection:
    describe(folder, Numbers(), "g", None)
    with ProjectionEngine(log, folder) as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
    return open_stored_projection(folder, "numbers", load=load)


def printed(folder: Path, source: str, seed: str = "0", *flags: str) -> str:
    """The fingerprint of `Counts` in a process of its own."""
    (folder / "counts.py").write_text(source)
    code = (
        "from noesium_stream.projection.code_fingerprint import fingerprint; import counts; "
        "print(fingerprint(counts.Counts()))"
    )
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def test_the_same_source_is_the_same_code_in_every_process(tmp_path: Path) -> None:
    first = printed(tmp_path, SOURCE)
    assert first.startswith(f"3.{sys.version_info.minor}:")
    assert printed(tmp_path, SOURCE, "1") == first
    assert printed(tmp_path, SOURCE, "2", "-OO") == first
    same = (
        SOURCE.replace("  # one more", "").replace('"""Counts."""\n', "").replace("\n\n\n", "\n\n\n\n# ---\n")
    )
    assert same != SOURCE
    assert printed(tmp_path, same, "random") == first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("state + 1", "state + 2"),
        ('"four"}', '"five"}'),
        ("return 0", "return 1"),
        ('("demo.counted",)', '("demo.",)'),
    ],
)
def test_another_source_is_other_code_also_in_a_base(tmp_path: Path, old: str, new: str) -> None:
    changed = SOURCE.replace(old, new)
    assert changed != SOURCE
    assert differs(printed(tmp_path, SOURCE), printed(tmp_path, changed))


def test_what_cannot_be_compared_does_not_differ() -> None:
    assert differs("3.11:a", "3.11:b")
    assert not differs("3.11:a", "3.12:b")
    assert not differs(None, "3.11:b")
    assert not differs("3.11:a", None)
    made: type[BaseProjection[int]] = type("Made", (Numbers,), {"__module__": "nowhere"})
    assert fingerprint(made()) is None


def test_what_is_composed_has_the_code_of_its_parts() -> None:
    whole = fingerprint(compose("both", a=Numbers(), b=Numbers()))
    assert whole == fingerprint(compose("both", b=Numbers(), a=Numbers()))
    assert differs(whole, fingerprint(compose("both", a=Numbers(), b=Sums())))


class Second(Numbers):
    version = 2
    previous_version = Numbers

    def migrate(self, key: str, state: list[int]) -> list[int]:
        return state


class Third(Second):
    version = 3
    previous_version = Second


def test_the_code_of_the_versions_before_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fingerprint(Numbers()), fingerprint(Third())
    assert fingerprint(Third()) == second
    monkeypatch.setattr(Second, "previous_version", Sums)
    assert differs(second, fingerprint(Third()))
    assert fingerprint(Numbers()) == first


class Other(Numbers):
    """Other code of the same name and version."""

    def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
        return [event.payload["n"], *state]


class Shaped(Numbers, BaseProjection[list[float]]):  # type: ignore[misc]
    """Other code whose states are another type."""


async def test_other_code_is_noted_until_the_state_is_folded_anew(log: EventLog, tmp_path: Path) -> None:
    assert not describe(tmp_path, Other(), "g", None), "nothing is folded yet"
    stored = await folded(log, tmp_path)
    assert not describe(tmp_path, Numbers(), "g", None)
    for _ in range(2):
        assert describe(tmp_path, Other(), "g", None)
    assert not describe(tmp_path, Numbers(), "g", None), "back to what it was"
    assert not describe(tmp_path, Other(), "g", None, anew=True)
    assert not describe(tmp_path, Other(), "g", None)
    about = StoredProjection(stored.path, load).about
    assert about.code == fingerprint(Other())


async def test_a_state_that_is_made_anew_anyway_is_not_noted(log: EventLog, tmp_path: Path) -> None:
    stored = await folded(log, tmp_path)
    assert not describe(tmp_path, Shaped(), "g", None), "states of another type are folded again"
    describe(tmp_path, Numbers(), "g", None, anew=True)
    for path in stored.files():
        path.write_bytes(b"no database")
    assert not describe(tmp_path, Other(), "g", None)


async def test_what_a_newer_release_says_besides_is_passed_over(log: EventLog, tmp_path: Path) -> None:
    stored = await folded(log, tmp_path)
    path = stored.path / "projection.json"
    path.write_text(path.read_text().replace("{", '{"newer": 1,', 1))
    assert StoredProjection(stored.path, load).about == stored.about
    old = About("numbers", 1, None, "g", keyed=True, merges=False)
    assert old.code is None
