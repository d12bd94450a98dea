"""The tools by which a model uses skill folders: load one, read its files, run its scripts.

Progressive disclosure: a model always sees names and descriptions; it loads the instructions of a skill when
a task calls for it, and its other files when the instructions do.

What a skill says is text that the operator has deployed, as a prompt is; its results bear the label
`skill:NAME`. The hash of each folder is a tag of the tools, so that their definitions change with it.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import Field

from noesium_stream.errors import ConfigError, ToolExecutionError, ToolInputError
from noesium_stream.event.standard import DeterminismClass, SideEffectClass
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.skill.catalogue import catalogue_text
from noesium_stream.tool.skill.files import read_file
from noesium_stream.tool.skill.folder import SkillFolder, find_skills, load_skill_folder
from noesium_stream.tool.skill.frontmatter import SKILL_FILE
from noesium_stream.tool.skill.script import NEED, run_script
from noesium_stream.tool.toolkit import BaseToolkit, ToolkitConfig, register_toolkit

MAX_READ: Final = 1_000_000
"""Bytes of a file that a model may read; a script may read larger ones."""
MAX_SKILLS: Final = 200
MAX_ARGUMENT: Final = 10_000
MAX_STDIN: Final = 1_000_000
SCRIPT_TIMEOUT_MS: Final = 60_000

_NO_NUL: Final = r"^[^\u0000]*$"


class SkillToolkitConfig(ToolkitConfig):
    """Settings of the skills of an agent.

    Attributes:
        folders: skill folders, or folders that hold some.
        base: the folder that relative ones lie in.
    """

    folders: tuple[Path, ...] = Field(default=(), max_length=MAX_SKILLS)
    base: Path = Path()


@register_toolkit("skills")
class SkillToolkit(BaseToolkit):
    """Skill folders as tools: `load_skill`, `read_skill_file` and, if there are scripts, `run_skill_script`.

        class Clerk(BaseGraphicAgent):
            tools = (SkillToolkit("skills"),)

    Folders are loaded once per process, when they are first asked for.
    """

    name: ClassVar[str] = "skills"
    Config: ClassVar[type[ToolkitConfig]] = SkillToolkitConfig
    source: ClassVar[ToolSource] = ToolSource.BUILTIN

    def __init__(self, *folders: str | Path, base: str | Path = ".", **settings: Any) -> None:
        """Take skill folders, or folders that hold some; relative ones lie in `base`."""
        given = {"folders": folders, "base": base} if folders else settings
        super().__init__(**given)

    @cached_property
    def skills(self) -> tuple[SkillFolder, ...]:
        """The skills, sorted by name.

        Raises:
            SkillNotFoundError: a folder is not there, or not valid.
            ConfigError: two have the same name, or there are too many.
        """
        assert isinstance(self.config, SkillToolkitConfig)
        return load_skills(self.config.folders, self.config.base)

    def tools(self) -> list[AtomicTool]:
        """Its tools; none without skills."""
        return skill_folder_tools(self.skills)


def skill_tools(folders: Iterable[str | Path], base: Path) -> list[AtomicTool]:
    """The tools of an agent's skill folders.

    Args:
        folders: skill folders, or folders that hold some.
        base: the folder that relative ones lie in.

    Raises:
        SkillNotFoundError: a folder is not there, or not valid.
        ConfigError: two skills have the same name.
    """
    return skill_folder_tools(load_skills(folders, base))


def load_skills(folders: Iterable[str | Path], base: Path) -> tuple[SkillFolder, ...]:
    """Load skill folders, and those in folders of skills; sorted by name.

    Raises:
        SkillNotFoundError: a folder is not there, not valid, or holds no skills.
        ConfigError: two have the same name, or there are more than 200.
    """
    loaded: dict[str, SkillFolder] = {}
    for folder in folders:
        at = base / folder
        for path in find_skills(at) or [at]:
            skill = load_skill_folder(path)
            other = loaded.setdefault(skill.name, skill)
            if other is not skill and other.path.resolve() != path.resolve():
                raise ConfigError(f"Two skills have the name {skill.name}: {other.path} and {path}.")
    if len(loaded) > MAX_SKILLS:
        raise ConfigError(f"There are {len(loaded)} skills; an agent may have {MAX_SKILLS}.")
    return tuple(loaded[name] for name in sorted(loaded))


def skill_folder_tools(skills: Sequence[SkillFolder]) -> list[AtomicTool]:
    """The tools of loaded skills; none without skills."""
    if not skills:
        return []
    tools = [_load_tool(skills), _read_tool(skills)]
    with_scripts = [skill for skill in skills if skill.scripts]
    return [*tools, _script_tool(with_scripts)] if with_scripts else tools


def _load_tool(skills: Sequence[SkillFolder]) -> AtomicTool:
    by_name = {skill.name: skill for skill in skills}

    def load_skill(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        skill = by_name[arguments["name"]]
        others = [file.path for file in skill.files if file.path != SKILL_FILE]
        return {"name": skill.name, "instructions": skill.body, "files": others}

    return _tool(
        "load_skill",
        "Read the instructions of a skill, and the list of its files. Do it before a task that one of these "
        f"skills is for:\n{catalogue_text(skills)}",
        skills,
        {"name": _name_schema(skills)},
        load_skill,
    )


def _read_tool(skills: Sequence[SkillFolder]) -> AtomicTool:
    by_name = {skill.name: skill for skill in skills}

    def read_skill_file(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return file_content(by_name[arguments["name"]], arguments["path"])

    return _tool(
        "read_skill_file",
        "Read a file of a skill, such as references/… or assets/…, when its instructions say so.",
        skills,
        {
            "name": _name_schema(skills),
            "path": {
                "type": "string",
                "maxLength": 1_000,
                "description": "As load_skill lists it, such as references/REFERENCE.md.",
            },
        },
        read_skill_file,
    )


def _script_tool(skills: Sequence[SkillFolder]) -> AtomicTool:
    by_name = {skill.name: skill for skill in skills}

    async def run_skill_script(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        skill = by_name[arguments["name"]]
        given, stdin = arguments.get("arguments", []), arguments.get("stdin", "")
        return await run_script(skill, arguments["script"], given, stdin, context)

    tool = _tool(
        "run_skill_script",
        "Run a script of a skill in the workspace, when its instructions say so. It runs in a sandbox.",
        skills,
        {
            "name": _name_schema(skills),
            "script": {"type": "string", "maxLength": 1_000, "description": "Such as scripts/report.py."},
            "arguments": {
                "type": "array",
                "items": {"type": "string", "maxLength": MAX_ARGUMENT, "pattern": _NO_NUL},
                "maxItems": 100,
                "description": "Its command line, without the script itself.",
            },
            "stdin": {"type": "string", "maxLength": MAX_STDIN, "description": "Its standard input."},
        },
        run_skill_script,
        optional=("arguments", "stdin"),
    )
    return replace(
        tool,
        determinism_class=DeterminismClass.NONDETERMINISTIC,
        side_effect_class=SideEffectClass.EXTERNAL,
        permissions=(NEED,),
        timeout_ms=SCRIPT_TIMEOUT_MS,
    )


def file_content(skill: SkillFolder, path: str) -> dict[str, Any]:
    """A file of a skill for a model: its text, or its bytes in base64 if it is no UTF-8.

    Raises:
        ToolInputError: the skill has no such file, or it is too large for a model.
        ToolExecutionError: it cannot be read, or has changed since the skill was loaded.
    """
    file = skill.file(path.removeprefix("./"))
    if file is None:
        raise ToolInputError(
            f"The skill {skill.name} has no file {path[:200]!r}.", hint="load_skill lists its files."
        )
    if file.size > MAX_READ:
        raise ToolInputError(
            f"The file {file.path} of the skill {skill.name} has {file.size:,} bytes; a model may read "
            f"{MAX_READ:,}."
        )
    try:
        data = read_file(skill.path, file.path, file)
    except OSError as error:
        raise ToolExecutionError(
            f"The file {file.path} of the skill {skill.name} cannot be read: {error.strerror or error}."
        ) from None
    media_type = mimetypes.guess_type(file.path)[0] or "application/octet-stream"
    try:
        return {"path": file.path, "text": data.decode()}
    except UnicodeDecodeError:
        return {"path": file.path, "media_type": media_type, "base64": base64.b64encode(data).decode()}


def _tool(
    name: str,
    description: str,
    skills: Sequence[SkillFolder],
    properties: Mapping[str, Any],
    function: Callable[[dict[str, Any], ToolContext], Any],
    optional: Collection[str] = (),
) -> AtomicTool:
    return AtomicTool(
        name=name,
        description=description,
        input_schema={
            "type": "object",
            "properties": dict(properties),
            "required": [one for one in properties if one not in optional],
            "additionalProperties": False,
        },
        source=ToolSource.BUILTIN,
        toolkit_name=SkillToolkit.name,
        determinism_class=DeterminismClass.DETERMINISTIC,
        side_effect_class=SideEffectClass.PURE,
        tags=("category:skill", *(f"skill:{skill.name}:{skill.hash}" for skill in skills)),
        labels=tuple(f"skill:{skill.name}" for skill in skills),
        function=function,
    )


def _name_schema(skills: Sequence[SkillFolder]) -> dict[str, Any]:
    return {"type": "string", "enum": [skill.name for skill in skills], "description": "The skill."}
