"""Build of the wheel: it carries the folder `agents` as files; `noesium_stream/agent/shipped.py` says why.

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
    return sorted(path.as_posix() for path in Path("agents").rglob("*.py"))
