"""`noesium guide api`: the reference of the public names, made from the package that is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import noesium_stream
import noesium_stream.testing
import noesium_stream.tool
from noesium_stream.cli import app
from noesium_stream.cli.api_reference import api_reference

NAMES = [*noesium_stream.__all__, *noesium_stream.tool.__all__, *noesium_stream.testing.__all__]
TEXT = api_reference()


def entry(name: str) -> str:
    (found,) = re.findall(rf"^####? {re.escape(name)}\n\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


def test_every_public_name_has_one_entry_and_nothing_else_has() -> None:
    assert sorted(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_has_a_signature_and_a_docstring(name: str) -> None:
    code, _, text = entry(name).partition("```python\n")[2].partition("```\n")
    assert name in code
    assert text.strip()


def test_a_method_is_shown_with_its_annotations_as_they_are_written() -> None:
    method = entry("Client.publish")
    assert "async publish(" in method
    assert "    key: str | None = None,\n" in method
    assert ") -> Position\n" in method
    assert "CommitUnknownError: the event was sent and not acknowledged." in method


def test_properties_errors_and_enums_are_told_apart() -> None:
    assert entry("Client.log").startswith("```python\nlog: EventLog\n```\n")
    assert entry("AgentLoadError").startswith("```python\nclass AgentLoadError(AgentError)\n```\n")
    assert "- `SideEffectClass.PURE` = `'pure'`" in entry("SideEffectClass")


def test_a_field_of_a_model_is_shown_without_its_bounds() -> None:
    assert "    input_schema: dict[str, Any],\n" in entry("Capability")


def test_what_a_user_has_to_write_is_there_and_what_is_private_is_not() -> None:
    assert "### BaseGraphicAgent._build_graph\n" in TEXT
    assert "### BaseGraphicAgent._compiled" not in TEXT


def test_a_method_of_a_public_base_is_told_once() -> None:
    assert "#### BaseAgent.start\n" in TEXT
    assert "#### BaseGraphicAgent.start\n" not in TEXT


def test_nothing_in_it_differs_between_processes() -> None:
    assert " at 0x" not in TEXT
    code = "from noesium_stream.cli.api_reference import api_reference; print(api_reference(), end='')"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == TEXT


def test_the_command_prints_it() -> None:
    done = CliRunner().invoke(app.cli, ["guide", "api"])
    assert done.exit_code == 0
    assert done.stdout == TEXT
