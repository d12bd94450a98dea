"""The guide "memory", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("memory", tmp_path)
    learned = reader.bash("learned").stdout
    assert "None before, silver now" in learned
    assert "silver before, gold now" in learned
    assert 'replaced "silver"' in learned
    assert "mail:23" in learned
    retracted = reader.bash("retracted").stdout
    assert "\nsilver\n" in retracted
    assert "retracted" in retracted
    programmed = reader.bash("programmed").stdout
    assert "Rome\n['city']\n['Rome']" in programmed
    talked = reader.bash("talked").stdout
    assert talked.startswith("6\n0\n")
    assert talked.count("preference.coffee") == 2  # in the list before, and among what is gone
    assert talked.count("preference.tea") == 2  # in the lists before and after
    compacted = reader.bash("compacted").stdout
    assert '"parts": 8' in compacted
    assert "diary.000000~1" in compacted
    assert "diary.000004~1" in compacted
    assert "replaced" in compacted.partition("by compactor")[2]
    reached = reader.bash("reached").stdout.splitlines()
    shown = [line.split()[1] for line in reached if line.startswith("user:bob")]
    assert "diary.000000~1" in shown  # among what is gone
    assert {"diary.000000", "diary.000001", "diary.000003", "diary.000004~1"} <= set(shown)
    assert shown.count("diary.000002") == 0
    erased = reader.bash("erased")
    assert " sealed" in erased.stdout
    assert "None of them was found." in erased.stderr
    assert "Nothing is remembered" in erased.stderr
    found = reader.bash("found")
    assert found.stdout.count("The tide at Brackwater turns every six hours") >= 2
    assert found.stdout.count("Answered like this on ") == 1
    assert "2 facts are gone" in found.stderr
    reader.end()
