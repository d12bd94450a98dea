"""Scripts of skills: run in the sandbox, with what the agent's grant and the skill's `allowed-tools` cover.

A script sees a private copy of its skill, made of the files as they were loaded, and read-only. Nothing in
the workspace, nor a later change of the folder, can take its place.
"""

from __future__ import annotations

import os
import sys
import tempfile
from asyncio import to_thread
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import ToolExecutionError, ToolInputError, ToolPermissionError
from noesium_stream.event.trust.permission import covering, intersection
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.sandbox.find import find_sandbox
from noesium_stream.tool.sandbox.walls import walls_of
from noesium_stream.tool.skill.files import SkillFile, read_file
from noesium_stream.tool.skill.folder import SkillFolder

NEED: Final = "shell:execute:{name}/{script}"
"""What a call of `run_skill_script` needs, such as `shell:execute:monthly-report/scripts/report.py`."""

_SHELLS: Final = {".sh": "sh", ".bash": "bash", ".js": "node"}
_SYSTEM: Final = Path("/usr")


async def run_script(
    skill: SkillFolder, path: str, arguments: Sequence[str], stdin: str, context: ToolContext
) -> dict[str, Any]:
    """Run a script of a skill in the agent's workspace, and return how it ended and what it wrote.

    Args:
        skill: the skill.
        path: one of `SkillFolder.scripts`.
        arguments: of its command line.
        stdin: its standard input.
        context: of the call.

    Raises:
        ToolInputError: the skill has no such script, or nothing here can run it.
        ToolPermissionError: the skill's `allowed-tools` do not cover it.
        ToolExecutionError: its skill has changed since it was loaded.
        SandboxError: there is no sandbox, or its walls cannot be built.
    """
    script = skill.file(path.removeprefix("./"))
    if script is None or script.path not in skill.scripts:
        raise ToolInputError(
            f"The skill {skill.name} has no script {path[:200]!r}.",
            hint=f"It has {', '.join(skill.scripts[:20]) or 'none'}.",
        )
    command, programs = _command(skill, script)
    inside = replace(context, granted_permissions=granted(skill, script.path, context))
    sandbox = await to_thread(find_sandbox)
    folder = await to_thread(_temporary)
    try:
        copy = await to_thread(_copied, skill, Path(folder.name))
        walls = walls_of(inside, programs=(copy, *programs))
        ran = [*command, str(copy / script.path), *arguments]
        result = await sandbox.run(ran, walls, stdin=stdin.encode())
    finally:
        folder.cleanup()
    return result.as_json()


def granted(skill: SkillFolder, script: str, context: ToolContext) -> tuple[str, ...]:
    """What a script may do: what the call was granted, within the skill's `allowed-tools` if it has any.

    Raises:
        ToolPermissionError: that does not cover the script itself.
    """
    if skill.allowed_tools is None:
        return context.granted_permissions
    both = intersection(context.granted_permissions, skill.allowed_tools.permissions)
    need = NEED.format(name=skill.name, script=script)
    if covering(skill.allowed_tools.permissions, need) is None:
        raise ToolPermissionError(
            f"The skill {skill.name} does not allow its script {script}: its allowed-tools name no shell.",
            reason="permission",
            hint="Add Bash to allowed-tools, or leave allowed-tools out.",
        )
    return both


def _command(skill: SkillFolder, script: SkillFile) -> tuple[list[str], tuple[Path, ...]]:
    """What runs a script, and what that needs of the machine beside its system folders."""
    suffix = Path(script.path).suffix
    if suffix == ".py":
        python, base = Path(os.path.realpath(sys.executable)), Path(os.path.realpath(sys.base_prefix))
        return [str(python), "-B", "-s"], () if base.is_relative_to(_SYSTEM) else (base,)
    if suffix in _SHELLS:
        return [_SHELLS[suffix]], ()
    if script.executable:
        return [], ()
    raise ToolInputError(
        f"Nothing here can run the script {script.path} of the skill {skill.name}.",
        hint=f"Name it .py, {', '.join(_SHELLS)}, or make it executable with a #! line.",
    )


def _temporary() -> tempfile.TemporaryDirectory[str]:
    # A call that is cancelled may leave while the files are being copied.
    return tempfile.TemporaryDirectory(prefix="noesium-skill-", ignore_cleanup_errors=True)


def _copied(skill: SkillFolder, folder: Path) -> Path:
    """A copy of the skill's files, as they were loaded, in a folder.

    Raises:
        ToolExecutionError: one has changed, or cannot be read.
    """
    root = folder / skill.name
    for file in skill.files:
        target = root / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.write_bytes(read_file(skill.path, file.path, file))
        except OSError as error:
            raise ToolExecutionError(
                f"The skill {skill.name} cannot be copied: {file.path}: {error.strerror or error}."
            ) from None
        target.chmod(0o500 if file.executable else 0o400)
    return root
