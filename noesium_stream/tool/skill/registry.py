"""`SkillRegistry`: skills by name (RFC-2004)."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from noesium_stream.errors import ConfigError, SkillNotFoundError
from noesium_stream.tool.skill.skill import Skill


class SkillRegistry:
    """Skills by name."""

    def __init__(self) -> None:
        self._skills: dict[str, Skill] = {}

    def register(self, skill: Skill) -> Skill:
        """Add a skill, and return it.

        Raises:
            ConfigError: another skill has this name.
        """
        if self._skills.setdefault(skill.name, skill) is not skill:
            raise ConfigError(f"There are two skills {skill.name}.", hint="Rename one of them.")
        return skill

    def get(self, name: str) -> Skill:
        """The skill of this name, or of this id.

        Raises:
            SkillNotFoundError: there is none.
        """
        found = self._skills.get(name) or self._by_id(name)
        if found is None:
            near = difflib.get_close_matches(name[:200], self._skills, 1)
            raise SkillNotFoundError(
                f"There is no skill {name[:200]!r}.",
                hint=f"Did you mean {near[0]!r}?"
                if near
                else f"There are {', '.join(sorted(self._skills)) or 'none'}.",
            )
        return found

    def list_skills(self, *, tools: Collection[str] = ()) -> list[Skill]:
        """The skills, sorted by name; with `tools` only those that use all of these."""
        wanted = set(tools)
        return [
            self._skills[name]
            for name in sorted(self._skills)
            if wanted <= set(self._skills[name].tool_names)
        ]

    def _by_id(self, skill_id: str) -> Skill | None:
        return next((one for one in self._skills.values() if one.skill_id == skill_id), None)
