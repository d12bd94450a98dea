"""Projects of users: made from the templates in `cli/templates`."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shutil
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

from noesium_stream.errors import ConfigError
from noesium_stream.event.limits import MAX_AGENT_TYPE

_NAME: Final = re.compile(rf"[a-z][a-z0-9_]{{0,{MAX_AGENT_TYPE - 1}}}")
_FOLDERS: Final = ("agent", "agents", "tests")
"""Names that would hide a folder of the project, or the agents of this repository."""

AGENT_FILES: Final = {
    "pyproject.toml.tmpl": "pyproject.toml",
    "README.md.tmpl": "README.md",
    "gitignore.tmpl": ".gitignore",
    "package/__init__.py.tmpl": "{name}/__init__.py",
    "package/agent.py.tmpl": "{name}/agent.py",
    "tests/test_agent.py.tmpl": "tests/test_agent.py",
}
"""Template → file of the project."""


def new_agent(name: str, parent: Path) -> Path:
    """Make the project of an agent in a new folder of `parent`; return the folder.

    Raises:
        ConfigError: the name is not one for an agent and a Python package, or the folder exists.
        OSError: a file cannot be written; nothing is left behind.
    """
    _check_form(name)
    folder = parent / name
    if os.path.lexists(folder):
        raise _exists(name, parent)
    _check_free(name)
    values = {
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "version": version("noesium-stream"),
    }
    texts = {
        place.format(name=name): Template(_template(source)).substitute(values)
        for source, place in AGENT_FILES.items()
    }
    try:
        folder.mkdir()
    except FileExistsError:
        raise _exists(name, parent) from None
    try:
        for place, text in texts.items():
            (folder / place).parent.mkdir(exist_ok=True)
            (folder / place).write_text(text, encoding="utf-8")
    except OSError:
        shutil.rmtree(folder)
        raise
    return folder


def _check_form(name: str) -> None:
    if not _NAME.fullmatch(name):
        like = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        near = f" Did you mean {like}?" if _NAME.fullmatch(like) else ""
        raise ConfigError(
            f"{name[:MAX_AGENT_TYPE]!r} cannot name an agent and its package.",
            hint=f"Begin with a letter; use small letters, digits and _, at most {MAX_AGENT_TYPE}.{near}",
        )


def _check_free(name: str) -> None:
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        taken = "a word of Python"
    elif name in _FOLDERS:
        taken = "a folder of projects"
    elif importlib.util.find_spec(name) is not None:
        taken = "a module that is installed here, which the project would hide"
    else:
        return
    raise ConfigError(f"{name} cannot name a project: it is {taken}.", hint="Choose another name.")


def _exists(name: str, parent: Path) -> ConfigError:
    return ConfigError(
        f"{name} exists already in {parent}.", hint="Choose another name, or work in another folder."
    )


def _template(source: str) -> str:
    return files("noesium_stream").joinpath("cli", "templates", "agent", source).read_text(encoding="utf-8")
