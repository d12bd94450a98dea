"""Skill folders with a SKILL.md, the open format of Agent Skills: found, validated, and loaded.

A folder is loaded whole: each of its files is hashed, and what is read later has to be what was loaded. So
one hash stands for all that a model can see of the skill, and for every script that it can start.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from noesium_stream.errors import SkillNotFoundError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.tool.skill.allowed import AllowedTools, parse_allowed_tools
from noesium_stream.tool.skill.files import IGNORED, SkillFile, list_files, read_file
from noesium_stream.tool.skill.frontmatter import SKILL_FILE, FrontMatter, parse_front_matter
from noesium_stream.tool.skill.problem import SkillProblem

MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1_024
MAX_COMPATIBILITY: Final = 500
MAX_LICENSE: Final = 500
MAX_BODY: Final = 200_000
"""Characters of a body; a model reads all of it."""
LONG_BODY: Final = 500
"""Lines from which the format recommends to move text to `references/`."""
MAX_SEARCHED: Final = 2_000
"""Folders in which `find_skills` looks."""
MAX_SEARCH_DEPTH: Final = 5
SCRIPTS: Final = "scripts/"

_KNOWN: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_LIMITS: Final = {
    "description": MAX_DESCRIPTION,
    "compatibility": MAX_COMPATIBILITY,
    "license": MAX_LICENSE,
    "allowed-tools": MAX_DESCRIPTION,
}
_LINK: Final = re.compile(r"\]\(([^)\s]{1,500})\)")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|[#/]")


@dataclass(frozen=True)
class SkillFolder:
    """A valid skill folder, as it was when it was loaded.

    Attributes:
        path: the folder.
        name, description, license, compatibility, metadata: its front matter.
        allowed_tools: the tools that it names as pre-approved; None: it does not say.
        body: the instructions, Markdown.
        files: all of its files, sorted by path.
    """

    path: Path
    name: str
    description: str
    license: str | None
    compatibility: str | None
    metadata: Mapping[str, str]
    allowed_tools: AllowedTools | None
    body: str = field(repr=False)
    files: tuple[SkillFile, ...] = field(repr=False)

    @property
    def body_path(self) -> Path:
        """Its SKILL.md."""
        return self.path / SKILL_FILE

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the paths, modes and contents of all files, in hexadecimal digits."""
        listed = [[file.path, file.executable, file.sha256] for file in self.files]
        return hashlib.sha256(canonical_json(listed)).hexdigest()

    @property
    def scripts(self) -> tuple[str, ...]:
        """The paths of its scripts, `scripts/…`."""
        return tuple(file.path for file in self.files if file.path.startswith(SCRIPTS))

    def file(self, path: str) -> SkillFile | None:
        """The file of this path; None: there is none."""
        return next((file for file in self.files if file.path == path), None)


def load_skill_folder(path: Path) -> SkillFolder:
    """Load a skill folder.

    Raises:
        SkillNotFoundError: it is no folder, or not valid; names the first problem.
    """
    skill, problems = _read(path)
    wrong = [problem for problem in problems if not problem.advice]
    if skill is None or wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise SkillNotFoundError(
            f"The skill folder {path} is not valid: {wrong[0]}{more}",
            hint=f"noesium skills check {path}",
        )
    return skill


def check_skill_folder(path: Path) -> list[SkillProblem]:
    """All that is wrong with a skill folder, sorted by file and line; empty: it is valid."""
    return _read(path)[1]


def find_skills(folder: Path) -> list[Path]:
    """The skill folders in a folder, sorted: itself, or those below it that hold a SKILL.md.

    Links are not followed, nor is anything looked for inside a skill.

    Raises:
        SkillNotFoundError: there is no such folder, or it cannot be read.
    """
    if not folder.is_dir():
        raise SkillNotFoundError(f"There is no folder {folder}.")
    found: list[Path] = []
    for searched, (here, folders, files) in enumerate(os.walk(folder, onerror=_raise)):
        folders[:] = sorted(name for name in folders if name not in IGNORED)
        if SKILL_FILE in files:
            found.append(Path(here))
            folders.clear()
        if searched >= MAX_SEARCHED or len(Path(here).relative_to(folder).parts) >= MAX_SEARCH_DEPTH:
            folders.clear()
    return sorted(found)


def _raise(error: OSError) -> None:
    raise SkillNotFoundError(f"{error.filename} cannot be read: {error.strerror}.") from None


def _read(path: Path) -> tuple[SkillFolder | None, list[SkillProblem]]:
    """Read a folder: what it is as far as it is valid, and its problems, sorted."""
    try:
        files, problems = list_files(path)
        if not any(file.path == SKILL_FILE for file in files):
            lost = f"There is no {SKILL_FILE}."
            return None, sorted([*problems, SkillProblem(SKILL_FILE, None, lost)], key=lambda one: one.at)
        text = read_file(path, SKILL_FILE).decode()
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return None, [SkillProblem(SKILL_FILE, line, "It is no UTF-8 text.")]
    except OSError as error:
        return None, [SkillProblem(".", None, f"It cannot be read: {error.strerror or error}.")]
    found = parse_front_matter(text)
    if not found.problems:
        found.problems += _field_problems(found, path.resolve().name)
    problems += [*found.problems, *_body_problems(found, files)]
    problems.sort(key=lambda one: one.at)
    if any(not problem.advice for problem in problems):
        return None, problems
    return _folder_of(path, found, files), problems


def _folder_of(path: Path, found: FrontMatter, files: list[SkillFile]) -> SkillFolder:
    texts = {name: value for name, value in found.fields.items() if isinstance(value, str)}
    metadata = found.fields.get("metadata")
    allowed = texts.get("allowed-tools")
    return SkillFolder(
        path=path,
        name=unicodedata.normalize("NFKC", texts["name"]),
        description=texts["description"].strip(),
        license=texts.get("license"),
        compatibility=texts.get("compatibility"),
        metadata=metadata if isinstance(metadata, dict) else {},
        allowed_tools=None if allowed is None else parse_allowed_tools(allowed),
        body=found.body.strip("\n"),
        files=tuple(files),
    )


def _field_problems(found: FrontMatter, folder: str) -> Iterator[SkillProblem]:
    for name in found.fields:
        if name not in _KNOWN:
            yield _at(found, name, f"There is no field {name[:200]!r}; own values belong below metadata.")
    for required in ("name", "description"):
        if required not in found.fields:
            yield SkillProblem(SKILL_FILE, 1, f"The front matter has no {required}.")
    for name in _KNOWN:
        value = found.fields.get(name)
        if name in found.fields and name != "metadata" and not isinstance(value, str):
            yield _at(found, name, f"{name} is no text.")
        elif isinstance(value, str):
            yield from _text_problems(found, name, value, folder)
    if "metadata" in found.fields and not isinstance(found.fields["metadata"], dict):
        yield _at(found, "metadata", "metadata is no mapping of names to texts.")


def _text_problems(found: FrontMatter, name: str, value: str, folder: str) -> Iterator[SkillProblem]:
    if name == "name":
        for message in _name_problems(unicodedata.normalize("NFKC", value), folder):
            yield _at(found, name, message)
    elif name == "metadata":
        return
    elif not value.strip() and name != "allowed-tools":
        yield _at(found, name, f"{name} is empty.")
    elif len(value) > _LIMITS[name]:
        yield _at(found, name, f"{name} has {len(value):,} characters; it may have {_LIMITS[name]:,}.")
    elif name == "allowed-tools":
        for part in parse_allowed_tools(value).unknown:
            yield _at(found, name, f"allowed-tools: {part[:200]!r} names nothing that is known here.", True)


def _name_problems(name: str, folder: str) -> Iterator[str]:
    """The rules of a name (see the format's reference library)."""
    if not name:
        yield "name is empty."
        return
    if len(name) > MAX_NAME:
        yield f"name has {len(name)} characters; it may have {MAX_NAME}."
    if name != name.lower() or not all(char.isalnum() or char == "-" for char in name):
        yield "name may only have lower-case letters, digits and hyphens."
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield "name has a hyphen at its begin or end, or two in a row."
    if name != unicodedata.normalize("NFKC", folder):
        yield f"name is {name[:100]!r}, but the folder is named {folder[:100]!r}."


def _body_problems(found: FrontMatter, files: list[SkillFile]) -> Iterator[SkillProblem]:
    if len(found.body) > MAX_BODY:
        yield SkillProblem(SKILL_FILE, found.body_line, f"The body has more than {MAX_BODY:,} characters.")
        return
    lines = found.body.split("\n")
    if len(lines) > LONG_BODY:
        long = f"The body has {len(lines):,} lines; move details to references/, which is read on demand."
        yield SkillProblem(SKILL_FILE, found.body_line, long, advice=True)
    known = {file.path for file in files}
    for number, line in enumerate(lines, found.body_line):
        for target in _LINK.findall(line):
            path = unquote(target.removeprefix("./").split("#")[0])
            inside = path in known or any(one.startswith(f"{path.rstrip('/')}/") for one in known)
            if path and _URL.match(target) is None and not inside:
                yield SkillProblem(SKILL_FILE, number, f"The skill has no file {path}.", advice=True)


def _at(found: FrontMatter, name: str, message: str, advice: bool = False) -> SkillProblem:
    return SkillProblem(SKILL_FILE, found.lines.get(name), message, advice)
