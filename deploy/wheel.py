"""Build of the wheel: it carries the folder `agents` as files; `noesium_stream/shipped_agents.py` says why.

`pyproject.toml` names the class; setuptools loads this file alone.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py


class BuildWithAgents(build_py):
    """`build_py` that also copies the agents; what is installed in place finds those of its clone."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        for source in _agents():
            target = Path(self.build_lib, "noesium_stream", "shipped", source)
            self.mkpath(str(target.parent))
            self.copy_file(source, str(target))

    def get_source_files(self) -> list[str]:
        """What a source distribution has: the package, the agents and this file."""
        return [*super().get_source_files(), *_agents(), Path("deploy", "wheel.py").as_posix()]


def _agents() -> list[str]:
    """The modules, and the skill folders with all of their files."""
    found = {path for path in Path("agents").rglob("*.py") if path.is_file()}
    skills = (skill.parent for skill in Path("agents").rglob("SKILL.md"))
    found.update(path for skill in skills for path in skill.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if "__pycache__" not in path.parts)
