"""The guide "builtin", followed from top to bottom."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.tool.skill.toolkit import SkillToolkit
from noesium_stream.tool.toolkit import TOOLKITS
from tests.support.pages import LONG_S, guide, read_guide

SETTINGS: dict[str, dict[str, Any]] = {
    "sql": {"path": "shop.db", "writable": True},
    "documents": {"docs": "."},
}


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("builtin", tmp_path)
    said = reader.bash("worked").stdout
    assert "state: final\nstate: draft\n" in said
    assert '"text": "state: final"' in said
    assert "fs:read:{path}, fs:write:{path}" in said
    refused = reader.bash("refused")
    assert "leads out of the workspace" in refused.stdout + refused.stderr
    assert json.loads(reader.bash("asked").stdout)["answer"]["rows"] == [["tea", 320], ["oil", 900]]
    other = reader.bash("other")
    assert "needs 'sql:read:salaries', and buyer is not granted" in other.stdout + other.stderr
    times = reader.bash("times").stdout
    assert "2026-07-01T06:00:00-04:00" in times
    assert "2026-02-28T09:00:00+00:00" in times
    assert "2026-03-29T03:30:00+02:00" in times
    assert "'skipped': True" in times
    assert "P1DT11H" in times
    found = json.loads(reader.bash("found").stdout)["answer"]
    assert (found["best"]["path"], found["best"]["first_line"]) == ("leave.md", 3)
    assert found["document"]["passages"][0]["text"] == "Employees have thirty days of leave in a year."
    reader.end()


def test_its_table_has_every_built_in_tool_with_what_it_needs() -> None:
    rows = {}
    for line in guide("builtin").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6:
            rows.update(dict.fromkeys(re.findall(r"`([a-z_]+)`", cells[1]), cells[3:]))
    for name in set(TOOLKITS.names()) - {SkillToolkit.name}:
        toolkit = TOOLKITS.get(name)
        if not toolkit.__module__.startswith("noesium_stream"):
            continue
        for tool in toolkit(**SETTINGS.get(name, {})).tools():
            side_effects, needs, label = rows[tool.name]
            assert side_effects == tool.side_effect_class.value, tool.name
            assert label == "".join(f"`{one}`" for one in tool.labels), tool.name
            for permission in tool.permissions:
                assert ":".join(permission.split(":")[:2]) in needs, tool.name
