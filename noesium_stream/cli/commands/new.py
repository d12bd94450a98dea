"""`noesium new`: projects to begin with."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from noesium_stream.cli.new_project import new_agent
from noesium_stream.cli.output import note, out
from noesium_stream.cli.signals import synchronous


@click.group("new")
def new_command() -> None:
    """Make a project to begin with."""


@new_command.command("agent")
@click.argument("name")
@synchronous
def agent_command(name: str) -> None:
    """Make the project of an agent in the new folder NAME.

    It has an agent with a tool and a memory, tests that rehearse it with a crash, a pyproject.toml, and a
    README with a schedule for it. NAME is the agent's type, which names its topics for good, and its Python
    package.
    """
    folder = new_agent(name, Path.cwd())
    out(str(folder.relative_to(Path.cwd())))
    tests = "pytest" if find_spec("pytest") is not None else "pip install pytest && pytest"
    note(f'Go on with: cd {name} && {tests} && noesium run {name} "Who are you?"')
