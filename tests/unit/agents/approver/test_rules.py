"""The rules of the approver: what is wrong in a file is said with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.approver.rules import read_rules
from noesium_stream import ConfigError


def test_the_times_of_a_rule_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nask = ["ada"]\nremind = "10m"\nescalate = "90s"\n')
    (rule,) = read_rules(path)
    assert (rule.remind_s, rule.escalate_s, rule.remind.total_seconds()) == (600, 90, 90)
    assert rule.fits("any", "May I?")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "are no list"),
        ("rule = 3", "are no list"),
        ("[[rule]]\nask = []", "Rule 1 .* ask"),
        ('[[rule]]\nask = ["a"]\n[[rule]]\nask = ["a"]\nremind = "soon"', "Rule 2 .* write a time as"),
        ('[[rule]]\nask = ["a"]\nescalate = "0s"', "Rule 1 .* escalate"),
        ('[[rule]]\nask = ["a"]\nwhen = "import os"', "Rule 1"),
        ('[[rule]]\nask = ["a"]\ncolour = "red"', "Rule 1 .* colour"),
        ('[[rule]]\nask = ["a"]\ndefault = "approve"', "Rule 1 .* default"),
        ("[[rule", "not TOML"),
        ("\x00", "not TOML"),
    ],
)
def test_rules_that_cannot_be_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_rules(path)


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_rules(tmp_path / "nowhere.toml")
