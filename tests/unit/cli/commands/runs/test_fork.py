"""What `noesium fork` prints of a dry run."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import click
import pytest

from noesium_stream.cli.commands.runs.fork import _show_dry_run
from noesium_stream.kernel.dry_run.dry_run import DryRun
from noesium_stream.kernel.dry_run.dry_run_journal import DryStep

PARENT: Any = SimpleNamespace(id="parent")


def of_call(**arguments: Any) -> DryStep:
    payload = {"name": "pay", "effect_class": "external", "arguments": {"args": [], "kwargs": arguments}}
    return DryStep((3, "pull:pay"), "pay\x1b[2J", calls=[("effect.requested", payload)])


def test_arguments_are_shown_bounded_without_secrets_and_without_what_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    step = of_call(token="abcdef", to="\x1b]0;x\x07", note="n" * 10_000)
    _show_dry_run(PARENT, 2, DryRun("stopped", (step,)), False)
    _show_dry_run(PARENT, 2, DryRun("stopped", (step,)), True)
    shown = capsys.readouterr().out
    assert "abcdef" not in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    lines = shown.splitlines()
    assert lines[0] == "step 3, node pay\\x1b[2J  stops"
    assert lines[1].startswith('  would call  pay(token="***"')
    assert len(lines[1]) < 500


def test_a_failing_fork_is_exit_code_1_and_its_error_is_told_without_secrets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(click.exceptions.Exit) as ended:
        _show_dry_run(PARENT, 2, DryRun("failed", (), error="ValueError: password=hunter22"), False)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().out == "failed  ValueError: password=***\n"


def test_a_step_that_polls_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = DryRun("stopped", (DryStep((3, "pull:pay"), "pay", polls=True),))
    _show_dry_run(PARENT, 2, found, False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  it polls: a dry run ends at 1000 new calls of PURE effects and pauses"
    _show_dry_run(PARENT, 2, found, True)
    assert json.loads(capsys.readouterr().out)["steps"][0]["polls"] is True
