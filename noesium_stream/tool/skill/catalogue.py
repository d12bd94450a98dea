"""The list of skills that a model reads before it chooses one: names and descriptions, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from noesium_stream.escapes import escaped
from noesium_stream.tool.skill.folder import SkillFolder

MAX_CATALOGUE: Final = 32_768
"""Characters of a catalogue; a model reads it in each of its turns."""


def catalogue_text(skills: Iterable[SkillFolder]) -> str:
    """The catalogue as the open format recommends it for a prompt; empty: there are no skills.

    Text of a skill cannot end its own element. Skills that do not fit are counted.
    """
    parts, size, left_out = [], 0, 0
    for skill in sorted(skills, key=lambda one: one.name):
        part = (
            f"  <skill>\n    <name>{_text(skill.name)}</name>\n"
            f"    <description>{_text(skill.description)}</description>\n  </skill>"
        )
        if left_out or size + len(part) > MAX_CATALOGUE:
            left_out += 1
        else:
            parts.append(part)
            size += len(part)
    if left_out:
        parts.append(f"  <!-- {left_out} more skills are not shown -->")
    return "\n".join(["<available_skills>", *parts, "</available_skills>"]) if parts else ""


def _text(text: str) -> str:
    return escape(escaped(" ".join(text.split())), quote=False)
