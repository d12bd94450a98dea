"""Skill folders for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.pages import ROOT

EXAMPLE = ROOT / "agents" / "examples" / "skills" / "monthly-report"
MINIMAL = "name: {name}\ndescription: Does things.\n"


def skill_folder(
    parent: Path,
    name: str = "some-skill",
    *,
    matter: str = MINIMAL,
    body: str = "Do it.",
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Make a skill folder; `{name}` in the front matter is its name."""
    folder = parent / name
    folder.mkdir(parents=True)
    text = f"---\n{matter.replace('{name}', name)}---\n{body}"
    for path, content in {"SKILL.md": text, **(files or {})}.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder
