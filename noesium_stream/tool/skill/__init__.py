"""Skills: tools that are composed to one capability, and folders with a SKILL.md (RFC-2003 §9)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.tool.skill.catalogue import catalogue_text
    from noesium_stream.tool.skill.folder import (
        SkillFolder,
        check_skill_folder,
        find_skills,
        load_skill_folder,
    )
    from noesium_stream.tool.skill.function import skill_of
    from noesium_stream.tool.skill.problem import SkillProblem
    from noesium_stream.tool.skill.registry import SkillRegistry
    from noesium_stream.tool.skill.skill import Skill, SkillRun
    from noesium_stream.tool.skill.step import SkillStep
    from noesium_stream.tool.skill.toolkit import SkillToolkit, skill_tools

__all__ = [
    "Skill",
    "SkillFolder",
    "SkillProblem",
    "SkillRegistry",
    "SkillRun",
    "SkillStep",
    "SkillToolkit",
    "catalogue_text",
    "check_skill_folder",
    "find_skills",
    "load_skill_folder",
    "skill_of",
    "skill_tools",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Skill": "skill",
            "SkillFolder": "folder",
            "SkillProblem": "problem",
            "SkillRegistry": "registry",
            "SkillRun": "skill",
            "SkillStep": "step",
            "SkillToolkit": "toolkit",
            "catalogue_text": "catalogue",
            "check_skill_folder": "folder",
            "find_skills": "folder",
            "load_skill_folder": "folder",
            "skill_of": "function",
            "skill_tools": "toolkit",
        },
    )
