"""Names of tools: the ids of capabilities, in the characters and length that MCP allows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

MOST_NAME: Final = 128
_VALID: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{MOST_NAME}}}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.-]")
_HEAD: Final = 100
_DIGEST: Final = 16


def tool_name(skill: str) -> str:
    """Return the name of the tool for a capability: its id, if MCP allows it.

    Of another id the name has the first characters, the others replaced, and a hash of the whole.
    """
    if _VALID.fullmatch(skill):
        return skill
    digest = hashlib.sha256(skill.encode()).hexdigest()[:_DIGEST]
    return f"{_FOREIGN.sub('_', skill[:_HEAD])}-{digest}"


def skill_named(name: str, skills: Iterable[str]) -> str | None:
    """Return which of these capabilities has this tool name; None: none has.

    One whose id is the name itself comes before one whose id was made into it.
    """
    found = None
    for skill in skills:
        if skill == name:
            return skill
        if tool_name(skill) == name:
            found = skill
    return found
