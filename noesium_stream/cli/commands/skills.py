"""`noesium skills`: skill folders with a SKILL.md, listed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.session import json_option
from noesium_stream.cli.signals import synchronous
from noesium_stream.cli.table import table
from noesium_stream.errors import SkillNotFoundError
from noesium_stream.tool.skill.folder import SkillFolder, check_skill_folder, find_skills, load_skill_folder
from noesium_stream.tool.skill.problem import SkillProblem

_FOLDER = click.Path(path_type=Path)
_HASH_SHOWN = 12


@click.group("skills")
def skills_command() -> None:
    """List and check skill folders."""


@skills_command.command("list")
@click.argument("folders", nargs=-1, type=_FOLDER, metavar="[FOLDER]...")
@json_option
@synchronous
def list_command(folders: tuple[Path, ...], as_json: bool) -> None:
    """List the skills in folders: name, files, hash, tools that are named as allowed, description.

    A FOLDER is a skill, or a folder that holds some; by default `skills`. Skills that are not valid are named
    on standard error (exit code 1).
    """
    paths = [path for folder in folders or (Path("skills"),) for path in find_skills(folder)]
    loaded: list[SkillFolder] = []
    wrong = 0
    for path in paths:
        try:
            loaded.append(load_skill_folder(path))
        except SkillNotFoundError as error:
            wrong += 1
            note(error.message)
    loaded.sort(key=lambda skill: skill.name)
    if as_json:
        out_json([_as_json(skill) for skill in loaded])
    elif loaded:
        rows = [
            (skill.name, str(len(skill.files)), skill.hash[:_HASH_SHOWN], _allowed(skill)) for skill in loaded
        ]
        table(
            ("NAME", "FILES", "HASH", "ALLOWED"),
            rows,
            right=frozenset({1}),
            below=[s.description for s in loaded],
        )
    elif not paths:
        note("There are no skills in " + ", ".join(map(str, folders or ("skills",))) + ".")
    if wrong:
        raise click.exceptions.Exit(FAILED)


@skills_command.command("check")
@click.argument("folders", nargs=-1, required=True, type=_FOLDER, metavar="FOLDER...")
@json_option
@synchronous
def check_command(folders: tuple[Path, ...], as_json: bool) -> None:
    """Print all that is wrong with skills, with file and line (exit code 1 if one is not valid).

    A FOLDER is a skill, or a folder that holds some. Advice does not make a skill invalid.
    """
    paths = [path for folder in folders for path in find_skills(folder) or [folder]]
    checked = {path: check_skill_folder(path) for path in paths}
    wrong = [path for path, found in checked.items() if any(not problem.advice for problem in found)]
    if as_json:
        out_json([_problems_as_json(path, found) for path, found in checked.items()])
    else:
        for path, found in checked.items():
            for problem in found:
                out(f"{path / problem.place}: {'advice: ' if problem.advice else ''}{problem.message}")
    note(f"{len(checked) - len(wrong)} of {len(checked)} skills are valid")
    if wrong:
        raise click.exceptions.Exit(FAILED)


def _allowed(skill: SkillFolder) -> str:
    return "-" if skill.allowed_tools is None else " ".join(skill.allowed_tools.names) or "none"


def _as_json(skill: SkillFolder) -> dict[str, Any]:
    allowed = skill.allowed_tools
    return {
        "name": skill.name,
        "description": skill.description,
        "path": str(skill.path),
        "hash": skill.hash,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": dict(skill.metadata),
        "allowed_tools": None if allowed is None else list(allowed.names),
        "permissions": None if allowed is None else list(allowed.permissions),
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in skill.files],
    }


def _problems_as_json(path: Path, problems: list[SkillProblem]) -> dict[str, Any]:
    return {
        "path": str(path),
        "valid": not any(not problem.advice for problem in problems),
        "problems": [
            {"file": one.path, "line": one.line, "message": one.message, "advice": one.advice}
            for one in problems
        ],
    }
