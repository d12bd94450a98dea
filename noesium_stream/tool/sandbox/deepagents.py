"""`WorkspaceSandbox`: the sandbox of this machine as the backend of a Deep Agent (the extra `deepagents`).

Files and commands of the agent all go through programs inside the walls: nothing that it asks for is opened
by this process. `/workspace` is a folder of yours, and what is in `/tmp` stays until the backend is closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

from noesium_stream.errors import ConfigError, SandboxError
from noesium_stream.event.trust.permission import permission_in
from noesium_stream.tool.extra import missing_extra
from noesium_stream.tool.sandbox.bubblewrap import SCRATCH
from noesium_stream.tool.sandbox.find import find_sandbox
from noesium_stream.tool.sandbox.python import python_folders
from noesium_stream.tool.sandbox.result import Ended, SandboxResult
from noesium_stream.tool.sandbox.walls import MIB, Limits, walls_from

try:
    from deepagents.backends.protocol import (
        ExecuteResponse,
        FileDownloadResponse,
        FileUploadResponse,
    )
    from deepagents.backends.sandbox import BaseSandbox
except ModuleNotFoundError as error:
    raise missing_extra("WorkspaceSandbox", error.name, "deepagents") from None

__all__ = ["LIMITS", "Limits", "WorkspaceSandbox"]

Value = TypeVar("Value")

LIMITS: Final = Limits(wall_s=120, cpu_s=120, output_bytes=MIB)
"""Of each command, if nothing else is said."""
_MAX_COMMAND: Final = 100_000
"""Bytes of a command; the kernel takes 131,071 in an argument."""
_MAX_PATH: Final = 4_096
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_SAID: Final = 300
_REMOVING_S: Final = 60

_EXECUTE: Final = 'exec 2>&1; PATH="$1"; export PATH; exec /bin/sh -c -- "$2"'
_MISSING, _FOLDER, _DENIED, _ODD = 81, 82, 83, 84
_ERRORS: Final = {
    _MISSING: "file_not_found",
    _FOLDER: "is_directory",
    _DENIED: "permission_denied",
    _ODD: "invalid_path",
}
_DOWNLOAD: Final = (
    f'[ -d "$1" ] && exit {_FOLDER}; [ -e "$1" ] || exit {_MISSING}; [ -f "$1" ] || exit {_ODD}; '
    f'[ -r "$1" ] || exit {_DENIED}; exec head -c "$2" -- "$1"'
)
# Written beside its place, and moved there: who reads it meanwhile sees the old file or the new one.
_UPLOAD: Final = (
    f'[ -d "$1" ] && exit {_FOLDER}; [ ! -e "$1" ] || [ -f "$1" ] || exit {_ODD}; folder="${{1%/*}}/"; '
    f'mkdir -p -- "$folder" 2>/dev/null || exit {_DENIED}; [ -w "$folder" ] || exit {_DENIED}; '
    f'[ ! -e "$1" ] || [ -w "$1" ] || exit {_DENIED}; part="$folder$2"; '
    'if cat > "$part"; then [ ! -e "$1" ] || chmod --reference="$1" -- "$part"; chmod ug-s -- "$part"; '
    'mv -f -T -- "$part" "$1" && exit; fi; rm -f -- "$part"; exit 1'
)


class WorkspaceSandbox(BaseSandbox):
    """A backend of `create_deep_agent` whose commands run in walls around one folder.

        agent = create_deep_agent(model, backend=WorkspaceSandbox("work"))

    Paths of the agent are those of the sandbox: `/workspace/notes.txt` is `work/notes.txt`. Each command
    starts in `/workspace`, in a sandbox of its own; files in `/workspace` and `/tmp` stay, and nothing else.

    Any thread and any event loop may use it. It raises `SandboxError` where walls cannot be built; whatever a
    command does is a result.
    """

    def __init__(
        self,
        workspace: str | Path,
        *,
        permissions: Sequence[str] = ("fs:read", "fs:write"),
        limits: Limits = LIMITS,
        programs: Sequence[str | Path] | None = None,
        sandbox: str | None = None,
    ) -> None:
        """Find the sandbox; nothing is started.

        Args:
            workspace: a folder that exists.
            permissions: what opens the walls, such as `fs:read`, `fs:write:reports/**`, `net:outbound`.
            limits: of each command; `wall_s` is also the longest timeout that a call may ask for.
            programs: folders and files outside the workspace that commands can read; None: this Python with
                the packages that are installed for it, unless they are in `/tmp`.
            sandbox: the provider; None: the first that works here.

        Raises:
            ConfigError: the workspace is no folder, or a permission is none.
            SandboxError: there is no sandbox on this machine, or no folder for its `/tmp` can be made.
        """
        self._sandbox = find_sandbox(sandbox)
        folder = Path(workspace).absolute()
        if not folder.is_dir():
            raise ConfigError(f"The workspace {folder} is no folder.", hint="Make the folder.")
        wrong = [one for one in permissions if permission_in(one) is None]
        if wrong:
            raise ConfigError(
                f"{wrong[0][:100]!r} is no permission.", hint="Write fs:read, or fs:write:reports/**."
            )
        scratch = _made_scratch()
        self._remove = weakref.finalize(self, _remove_scratch, scratch, os.getpid())
        own = tuple(one for one in python_folders() if not one.is_relative_to(SCRATCH))
        seen = own if programs is None else tuple(Path(one).absolute() for one in programs)
        self._walls = replace(
            walls_from(permissions, folder, limits=limits, programs=seen), scratch=Path(scratch)
        )
        python = Path(sys.executable).parent
        self._path = f"{python}:{_PATH}" if any(python.is_relative_to(one) for one in seen) else _PATH
        self._id = f"{self._sandbox.name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"

    @property
    def id(self) -> str:
        """Of the workspace: the same in each process."""
        return self._id

    def close(self) -> None:
        """Remove what is in its `/tmp`; it can start nothing afterwards. Also done when it is collected.

        Call it when no command of it runs. A process that is killed leaves the folder in its `TMPDIR`.
        """
        self._remove()

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command of `/bin/sh`; all that it has started is dead when this returns.

        Args:
            command: at most 100,000 bytes.
            timeout: seconds, at most those of the limits; None and 0: those of the limits.

        Returns:
            Both streams in their order, in UTF-8 with replacements; `truncated` if bytes were left out. The
            last line of a command that was killed at a limit says so.

        Raises:
            SandboxError: the walls cannot be built; nothing was executed.
        """
        wrong = _wrong_command(command)
        if wrong is not None:
            return ExecuteResponse(output=wrong, exit_code=126)
        limits = self._walls.limits
        if timeout is not None and 0 < timeout < limits.wall_s:
            limits = replace(limits, wall_s=timeout)
        result = await self._run((_EXECUTE, self._path, command), limits)
        return _response(result)

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """See `aexecute`."""
        return _waited(self.aexecute(command, timeout=timeout))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, each whole or not at all, with the folders that they need; a link is replaced.

        Args:
            files: absolute paths in the sandbox, and contents of at most `file_bytes` of the limits.

        Returns:
            A response for each, in order; an error is a code of Deep Agents, or a text.

        Raises:
            SandboxError: the walls cannot be built.
        """
        return [FileUploadResponse(path, await self._uploaded(path, content)) for path, content in files]

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """See `aupload_files`."""
        return _waited(self.aupload_files(files))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files of at most `file_bytes` of the limits.

        Args:
            paths: absolute, in the sandbox.

        Returns:
            A response for each, in order; an error is a code of Deep Agents, or a text.

        Raises:
            SandboxError: the walls cannot be built.
        """
        return [await self._downloaded(path) for path in paths]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """See `adownload_files`."""
        return _waited(self.adownload_files(paths))

    async def _uploaded(self, path: str, content: bytes) -> str | None:
        most = self._walls.limits.file_bytes
        if not _is_usable(path):
            return "invalid_path"
        if len(content) > most:
            return f"The file has {len(content):,} bytes, the limit is {most:,}."
        part, limits = f".{uuid4().hex}.part", self._transfer(output_bytes=_SAID)
        ended = False
        try:
            result = await self._run((_UPLOAD, path, part), limits, stdin=content)
            ended = result.ended is Ended.EXIT
        finally:
            if not ended:
                left = f"{path.rpartition('/')[0]}/{part}"
                patient = replace(limits, wall_s=_REMOVING_S, cpu_s=_REMOVING_S)
                await asyncio.shield(self._run(('rm -f -- "$1"', left), patient))
        return _error(result)

    async def _downloaded(self, path: str) -> FileDownloadResponse:
        if not _is_usable(path):
            return FileDownloadResponse(path, error="invalid_path")
        most = self._walls.limits.file_bytes
        script = (_DOWNLOAD, path, str(most + 1))
        result = await self._run(script, self._transfer(output_bytes=most))
        wrong = _error(result)
        if wrong is None and result.stdout_cut:
            wrong = f"The file has more than {most:,} bytes."
        return FileDownloadResponse(path, None if wrong else result.stdout, wrong)

    def _transfer(self, *, output_bytes: int) -> Limits:
        """The limits of a transfer: a file that is as long as it may be is no file that is too long."""
        own = self._walls.limits
        return replace(own, output_bytes=output_bytes, file_bytes=-(-own.file_bytes // 512) * 512)

    async def _run(self, script: Sequence[str], limits: Limits, *, stdin: bytes = b"") -> SandboxResult:
        code, *arguments = script
        command = ["/bin/sh", "-c", code, "sh", *arguments]
        return await self._sandbox.run(command, replace(self._walls, limits=limits), stdin=stdin)


def _made_scratch() -> str:
    try:
        return tempfile.mkdtemp(prefix="noesium-sandbox-")
    except OSError as error:
        raise SandboxError(
            f"{tempfile.gettempdir()} takes no folder for the /tmp of the sandbox: {error.strerror}.",
            hint="Set TMPDIR to a folder with space that this user may write to.",
        ) from None


def _remove_scratch(scratch: str, maker: int) -> None:
    """Remove it, however deep its folders are and whatever they permit; not in a process that was forked."""
    if os.getpid() == maker:
        script = 'chmod -R u+rwx -- "$1"; exec rm -rf -- "$1"'
        command = ["/bin/sh", "-c", script, "sh", scratch]
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(command, capture_output=True, timeout=_REMOVING_S, check=False)


def _response(result: SandboxResult) -> ExecuteResponse:
    output = result.stdout.decode(errors="replace")
    if result.ended not in (Ended.EXIT, Ended.SIGNAL):
        output += "" if not output or output.endswith("\n") else "\n"
        output += f"[killed: limit of {result.ended.value}]"
    return ExecuteResponse(output=output, exit_code=result.exit_code, truncated=result.stdout_cut > 0)


def _error(result: SandboxResult) -> str | None:
    if result.ended is Ended.EXIT and result.exit_code == 0:
        return None
    if result.ended is Ended.EXIT and result.exit_code in _ERRORS:
        return _ERRORS[result.exit_code]
    said = result.stderr.decode(errors="replace").strip()[:_SAID]
    return said or f"The transfer was ended: {result.ended.value} {result.exit_code}."


def _wrong_command(command: str) -> str | None:
    if "\0" in command:
        return "The command has a NUL character; nothing was executed."
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return "The command is no valid text; nothing was executed."
    if size > _MAX_COMMAND:
        return f"The command has {size:,} bytes, the limit is {_MAX_COMMAND:,}; nothing was executed."
    return None


def _is_usable(path: str) -> bool:
    """Whether a path is absolute and names a file, not a folder."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return False
    return path.startswith("/") and not path.endswith("/") and "\0" not in path and size <= _MAX_PATH


def _waited(call: Coroutine[Any, Any, Value]) -> Value:
    """The value of a coroutine, for code that cannot await it, in whatever thread that is."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, call).result()
