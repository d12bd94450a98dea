"""JSON of people and files that is nested beyond what the standard library reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from noesium_stream.cli.commands.runs import approvals, control, effect
from noesium_stream.cli.commands.runs.given_input import GivenInput
from noesium_stream.client.operate.fork import parse_setting
from noesium_stream.config import _from_text
from noesium_stream.errors import CheckpointError, ConfigError
from noesium_stream.event.trust.key_files import read_public_keys
from noesium_stream.kernel.recording.recorded_run import load_history
from noesium_stream.testing.golden import read_case

DEEP = ["[" * 100_000, '{"a":' * 100_000]


def of_file(read: Callable[[Path], Any], text: str, folder: Path) -> Any:
    path = folder / "deep.json"
    path.write_text(text)
    return read(path)


@pytest.mark.parametrize("text", DEEP)
def test_what_may_be_a_text_is_one(text: str) -> None:
    assert approvals._value(None, text) == control._value(text) == text
    assert parse_setting(f"a={text}") == ("a", text)


@pytest.mark.parametrize("text", DEEP)
def test_what_has_to_be_json_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="--input is not JSON"):
        GivenInput().convert(text, None, None)
    with pytest.raises(click.UsageError, match="--value is no JSON"):
        approvals._value(text, None)
    with pytest.raises(click.UsageError, match="--result is no JSON"):
        effect._decision(text, retry=False, fail=False)
    with pytest.raises(ConfigError, match="VARIABLE is not valid JSON"):
        _from_text("agent.llm_config", text, "VARIABLE")
    with pytest.raises(CheckpointError, match="is no recorded history"):
        load_history(text)
    with pytest.raises(ConfigError, match=r"deep\.json is no JSON"):
        of_file(read_case, text, tmp_path)
    with pytest.raises(ConfigError, match="is no file of public keys"):
        of_file(read_public_keys, text, tmp_path)
