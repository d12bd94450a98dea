"""The commands that only read, and a log on SQLite that gives each of them something to say."""

from __future__ import annotations

from typing import Final

from tests.support.command import Folder

READING: Final = (
    ("--help",),
    ("--version",),
    ("guide",),
    ("guide", "agent"),
    ("config",),
    ("runs",),
    ("runs", "--json"),
    ("show",),
    ("events",),
    ("tail",),
    ("wait", "{run}"),
    ("effects",),
    ("costs",),
    ("goals",),
    ("goals", "{run}", "--json"),
    ("schedule", "list"),
    ("budget", "list"),
    ("approvals",),
    ("state", "execution"),
    ("projections",),
    ("dlq", "list"),
    ("workers",),
    ("agents",),
    ("capability", "list"),
    ("capability", "resolve", "--help"),
    ("topics",),
    ("doctor",),
    ("run", "--help"),
    ("worker", "--help"),
    ("verify", "--help"),
    ("replay", "--help"),
    ("fork", "--help"),
    ("diff", "--help"),
)
"""`{run}` is the id of a run."""


def prepare(folder: Folder) -> str:
    """Let the toy agent answer a question, and fold its log; return the run's id."""
    run_id: str = folder.json("run", "agents.echo", "hello", "--json")["run_id"]
    folder.ok("project", "execution", "--once")
    return run_id


def arguments(command: tuple[str, ...], run_id: str) -> list[str]:
    """The command line of one of `READING`."""
    return [part.replace("{run}", run_id) for part in command]
