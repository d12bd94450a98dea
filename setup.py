"""Build of the wheel: it carries the folder `agents` as files; `noesium_stream/agent/shipped.py` says why."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

AGENTS = Path("agents")


class BuildWithAgents(build_py):
    """`build_py` that also copies the agents; what is installed in place finds those of its clone."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        for source in sorted(AGENTS.rglob("*.py")):
            target = Path(self.build_lib, "noesium_stream", "shipped", source)
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))


setup(cmdclass={"build_py": BuildWithAgents})
