"""The built-in toolkit `files`: files of the workspace; no link and no race leads out of it."""

from __future__ import annotations

from codecs import getincrementaldecoder
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field
from typing_extensions import TypedDict

from noesium_stream.errors import ConfigError, ToolExecutionError, ToolInputError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.private_files import make_folder
from noesium_stream.tool.atomic import ToolSource
from noesium_stream.tool.builtin.files_edit import edited
from noesium_stream.tool.builtin.files_open import FileContent, WorkspaceFiles, version_of
from noesium_stream.tool.builtin.files_search import MAX_PATTERN, Expression, Match, require_re2, search
from noesium_stream.tool.builtin.files_walk import Room, Walk, matches, pattern_parts
from noesium_stream.tool.content.set_aside import LIMIT_BYTES
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.function import tool
from noesium_stream.tool.toolkit import BaseToolkit, ToolkitConfig, register_toolkit

MAX_TEXT: Final = 1_000_000
MAX_MATCHES: Final = 200
MAX_FOUND: Final = 1_000
_ROOM: Final = 2_048
"""Bytes of a result beside its text."""

FilePath = Annotated[str, Field(min_length=1, max_length=1_000, description="Relative to the workspace.")]
Version = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="As read_file has given it.")]
Whole = Annotated[int, Field(ge=1, le=10_000_000)]


class Place(TypedDict):
    """A place in a text: line and column, in characters, from 1."""

    line: int
    column: int


class FileText(TypedDict):
    """A part of a file. `next` is where to go on; null at the end.

    `version` is null, and `lines` counts those up to the limit, for a file that is larger than the limit.
    """

    path: str
    text: str
    lines: int
    size: int
    version: str | None
    next: Place | None


class Changed(TypedDict):
    """A file that was changed, and its version now. `line`: the first one that an edit concerns."""

    path: str
    size: int
    version: str
    line: int


class Matches(TypedDict):
    """What a search has found. `skipped`: files that were not searched; `cut`: there may be more."""

    matches: list[Match]
    files: int
    skipped: int
    cut: bool


class FoundFile(TypedDict):
    """A file, and its size in bytes."""

    path: str
    size: int


class FoundFiles(TypedDict):
    """Files that were found. `skipped`: what cannot be opened; `cut`: there may be more."""

    files: list[FoundFile]
    skipped: int
    cut: bool


class FilesConfig(ToolkitConfig):
    """Settings of the toolkit `files`, set by an operator.

    Attributes:
        max_bytes: so much is read of a file, and a file that is written or edited has at most.
        hard_links: whether files that have a second name, which may be outside the workspace, are read.
    """

    max_bytes: int = Field(10_000_000, ge=1, le=100_000_000)
    hard_links: bool = False


@register_toolkit("files")
class FilesToolkit(BaseToolkit):
    """Tools that read, write, edit, search and find files of the workspace, as far as a call was granted.

    Results that show what is in a file carry the label `file`.
    """

    Config: ClassVar[type[ToolkitConfig]] = FilesConfig
    source: ClassVar[ToolSource] = ToolSource.BUILTIN
    config: FilesConfig

    def prepare(self, working_directory: Path) -> None:
        """See `BaseToolkit.prepare`.

        Raises:
            ConfigError: the extra `files` is not installed, or the workspace cannot be made.
        """
        require_re2()
        try:
            make_folder(working_directory)
        except OSError as error:
            raise ConfigError(
                f"The workspace {working_directory} cannot be made: {error.strerror}."
            ) from None

    @tool(
        side_effects=SideEffectClass.PURE,
        permissions=("fs:read:{path}",),
        labels=("file",),
        tags=("category:files",),
    )
    def read_file(
        self,
        path: FilePath,
        context: ToolContext,
        line: Whole = 1,
        column: Whole = 1,
        lines: Whole = 2_000,
    ) -> FileText:
        """Read a text file, or some of its lines.

        Where the result has `next`, call again with its line and column. edit_file needs `version`.
        """
        content = self._files(context).read(path)
        text = _text_of(path, content)
        start = _offset(text, line, column)
        part = _some_lines(text[start:], lines)
        end = start + len(part)
        return {
            "path": path,
            "text": part,
            "lines": text.count("\n") + (not text.endswith("\n")),
            "size": content.size,
            "version": content.version,
            "next": _place(text, end) if end < len(text) else None,
        }

    @tool(
        side_effects=SideEffectClass.IDEMPOTENT,
        permissions=("fs:write:{path}",),
        tags=("category:files",),
    )
    def write_file(
        self,
        path: FilePath,
        text: Annotated[str, Field(max_length=MAX_TEXT)],
        context: ToolContext,
        version: Version | None = None,
    ) -> Changed:
        """Write a whole text file. Folders that are missing are made.

        With a version, it is only replaced if it still has that version.
        """
        data = self._encoded(text)

        def change(found: FileContent | None) -> bytes | None:
            now = None if found is None else found.version
            if version is None or now == version:
                return data
            if found is not None and found.whole and found.data == data:
                return None  # the same call has written it before
            raise ToolInputError(
                f"{short(path)} has not the version {version} (any more).", hint="Read it again."
            )

        self._files(context).update(path, change, make=True)
        return {"path": path, "size": len(data), "version": version_of(data), "line": 1}

    @tool(
        side_effects=SideEffectClass.IDEMPOTENT,
        permissions=("fs:read:{path}", "fs:write:{path}"),
        tags=("category:files",),
    )
    def edit_file(
        self,
        path: FilePath,
        old: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)],
        new: Annotated[str, Field(max_length=MAX_TEXT)],
        version: Version,
        context: ToolContext,
    ) -> Changed:
        """Replace a part of a text file: `old` has to be in it exactly once.

        `version` is the one that read_file, or the last change, has given: a file that was changed since is
        left as it is.
        """
        before, after = self._encoded(old), self._encoded(new)
        if before == after:
            raise ToolInputError("`old` and `new` are the same.", hint="Give what is to be there instead.")
        made: list[Changed] = []

        def change(found: FileContent | None) -> bytes | None:
            if found is None:
                raise ToolExecutionError("is not there")
            _text_of(path, found)
            if not found.whole:
                raise ToolExecutionError(f"has over {self.config.max_bytes:,} bytes and cannot be edited")
            data, at = edited(found.data, before, after, version)
            if len(data) > self.config.max_bytes:
                raise ToolInputError(f"The file would have over {self.config.max_bytes:,} bytes.")
            made.append({"path": path, "size": len(data), "version": version_of(data), "line": at})
            return None if data == found.data else data

        self._files(context).update(path, change)
        return made[0]

    @tool(
        side_effects=SideEffectClass.PURE,
        permissions=("fs:read:{path}",),
        labels=("file",),
        tags=("category:files",),
    )
    def search_files(
        self,
        pattern: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN)],
        context: ToolContext,
        path: FilePath = ".",
        glob: Annotated[str, Field(min_length=1, max_length=1_000)] = "**",
        ignore_case: bool = False,
        most: Annotated[int, Field(ge=1, le=MAX_MATCHES)] = 50,
    ) -> Matches:
        """Search text files for lines that match a regular expression of RE2.

        `path` is a folder, or a file. `glob` limits it to files such as **/*.py. Binary files, links, and
        folders such as .git and node_modules are left out.
        """
        files = self._files(context)
        walk = Walk(files)
        expression, wanted = Expression(pattern, ignore_case=ignore_case), pattern_parts(glob)
        found = (one for one in walk.beneath(path) if matches(wanted, one.path, path))
        lines, searched = search(expression, files, walk, found, most)
        return {"matches": lines, "files": searched, "skipped": walk.skipped, "cut": walk.cut}

    @tool(
        side_effects=SideEffectClass.PURE,
        permissions=("fs:read:{path}",),
        labels=("file",),
        tags=("category:files",),
    )
    def find_files(
        self,
        pattern: Annotated[str, Field(min_length=1, max_length=1_000)],
        context: ToolContext,
        path: FilePath = ".",
        most: Annotated[int, Field(ge=1, le=MAX_FOUND)] = 200,
    ) -> FoundFiles:
        """Find files by a glob, relative to the folder `path`: *.md, **/test_*.py, or ** for all.

        Links, and folders such as .git and node_modules, are left out.
        """
        wanted, walk, room = pattern_parts(pattern), Walk(self._files(context)), Room()
        files: list[FoundFile] = []
        for found in walk.beneath(path):
            if not matches(wanted, found.path, path):
                continue
            one: FoundFile = {"path": found.path, "size": found.size}
            if len(files) == most or not room.takes(one):
                walk.cut = True
                break
            files.append(one)
        return {"files": files, "skipped": walk.skipped, "cut": walk.cut}

    def _files(self, context: ToolContext) -> WorkspaceFiles:
        return WorkspaceFiles(context, self.config.max_bytes, hard_links=self.config.hard_links)

    def _encoded(self, text: str) -> bytes:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise ToolInputError("The text has half a character, which no file can have.") from None
        if len(data) > self.config.max_bytes:
            raise ToolInputError(f"The text has over {self.config.max_bytes:,} bytes.")
        return data


def _text_of(path: str, content: FileContent) -> str:
    """The text of a file; of one that was cut, up to a whole character.

    Raises:
        ToolExecutionError: it is no text in UTF-8.
    """
    try:
        text = getincrementaldecoder("utf-8")().decode(content.data, final=content.whole)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ToolExecutionError(
            f"{short(path)} has {content.size:,} bytes that are no text in UTF-8.",
            hint="Programs in the sandbox read other formats (`noesium guide sandbox`).",
        )
    return text


def _offset(text: str, line: int, column: int) -> int:
    """Where a place is in a text.

    Raises:
        ToolInputError: there is no such place.
    """
    at = 0
    for _ in range(line - 1):
        at = text.find("\n", at) + 1
        if not at:
            raise ToolInputError(f"The file has no line {line}.", hint="Read its first line to see how many.")
    at += column - 1
    if at > len(text):
        raise ToolInputError(f"The line {line} of the file has no column {column}.")
    return at


def _some_lines(text: str, lines: int) -> str:
    """The first lines of a text, and no more than a result has room for."""
    end = -1
    for _ in range(lines):
        end = text.find("\n", end + 1)
        if end < 0 or end > LIMIT_BYTES:
            break
    part = text[: LIMIT_BYTES if end < 0 else end + 1][:LIMIT_BYTES]
    while len(canonical_json(part)) > LIMIT_BYTES - _ROOM:
        part = part[: len(part) * 3 // 4]
    return part


def _place(text: str, at: int) -> Place:
    begin = text.rfind("\n", 0, at) + 1
    return {"line": text.count("\n", 0, at) + 1, "column": at - begin + 1}
