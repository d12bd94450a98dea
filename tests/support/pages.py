"""The README and the guides, and a reader who follows one of them from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from noesium_stream.cli.guides import GUIDES
from tests.support import fork_server, forked_command
from tests.support.command import Folder, Running
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
FOLDER = ROOT / "noesium_stream" / "guides"
OUTPUT = "text"
"""Blocks in this language show output, or a drawing; there is nothing in them to run."""
LONG_S = 900.0
"""Longer than any snippet takes on a slow machine."""

_FENCE = re.compile(
    r"(?:^<!-- snippet: (?P<name>[^>]+?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = "file "
_OPENTELEMETRY = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
_COPIED = ("noesium_stream", "agents", "deploy", "schemas", "README.md", "pyproject.toml")


@dataclass(frozen=True)
class Snippet:
    """A fenced block. One that is named `file NAME` is the content of a file."""

    name: str | None
    language: str
    body: str


def guide(name: str) -> Path:
    """The file of a guide."""
    return FOLDER / f"{name}.md"


def pages() -> list[Path]:
    """The README, then the guides."""
    return [README, *map(guide, GUIDES)]


def blocks(page: Path) -> list[Snippet]:
    """Every fenced block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [Snippet(match["name"], match["language"], match["body"]) for match in _FENCE.finditer(text)]


class Reader(Folder):
    """Follows one page: saves each file and runs each command where the page has it, and skips nothing.

    A test names the commands in the order of the page; files are saved on the way. One thing differs from
    what is printed: a local broker, an A2A server and their addresses get a free port.
    """

    def __init__(self, page: Path, path: Path) -> None:
        super().__init__(path)
        self.page = page
        self.port = free_port()
        self.command = ("noesium",)
        self._left = [block for block in blocks(page) if block.name is not None]

    def bash(self, name: str, *, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the snippet that comes next; it must end with exit code `code`. What it exports stays set."""
        exported = self.path.parent / "exported"
        text = f"trap 'env -0 >{exported}' EXIT\n{self._reach(name)}"
        done = self.shell(text, code=None, **env)
        self.env = dict(line.split("=", 1) for line in exported.read_text().split("\0") if line)
        for variable in env:
            del self.env[variable]
        said = f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, f"{self.page.name}, snippet {name!r}: {said}"
        return done

    def shell(self, text: str, *, code: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """Run commands that the page does not have."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.path,
            env={**self.env, **env},
            pass_fds=self.descriptors,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )
        said = f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, f"{text}: {said}"
        return done

    @contextmanager
    def terminal(self, name: str) -> Iterator[Running]:
        """Run the snippet that comes next, one `noesium` command, in another terminal for a while."""
        program, *arguments = shlex.split(self._reach(name))
        assert program == "noesium", f"{self.page.name}, snippet {name!r} is not one command"
        with self.running(*arguments) as process:
            yield process

    def words(self, name: str) -> list[str]:
        """The words of the snippet that comes next, one command, for a terminal that a test makes."""
        return shlex.split(self._reach(name))

    def save(self, name: str) -> Path:
        """Save the file that comes next; only needed where a test looks at it before the next command."""
        self._reach(f"{_FILE}{name}")
        return self.path / name

    def end(self) -> None:
        """Save the files behind the last command. Fails if a command of the page was not run."""
        while self._left:
            block = self._left.pop(0)
            assert block.name is not None
            assert block.name.startswith(_FILE), f"{self.page.name}, snippet {block.name!r} was not run"
            self._write(block)

    def _reach(self, name: str) -> str:
        while self._left:
            block = self._left.pop(0)
            assert block.name is not None
            if block.name.startswith(_FILE):
                self._write(block)
            if block.name == name:
                return self._text(block)
            assert block.name.startswith(_FILE), f"{self.page.name}: {block.name!r} comes before {name!r}"
        raise AssertionError(f"{self.page.name} has no snippet {name!r} here")

    def _write(self, block: Snippet) -> None:
        assert block.name is not None
        path = self.path / block.name.removeprefix(_FILE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._text(block), encoding="utf-8")

    def _text(self, block: Snippet) -> str:
        text = block.body.replace("localhost:9092", f"localhost:{self.port}").replace("9999", str(self.port))
        return text.replace("noesium broker up", f"noesium broker up --port {self.port}")

    def output(self, beginning: str) -> str:
        """The block of output on this page that begins so."""
        (found,) = [
            b.body for b in blocks(self.page) if b.language == OUTPUT and b.body.startswith(beginning)
        ]
        return found


def read_guide(name: str, tmp_path: Path) -> Reader:
    """A reader of a guide, in a copy of this repository in which the package and its extras are installed.

    The environment is the one that runs the tests. Its `pip` resolves what a guide installs (an extra that
    is not there is an error), and installs nothing.
    """
    path = tmp_path / "clone"
    path.mkdir()
    for each in _COPIED:
        source = ROOT / each
        if source.is_dir():
            shutil.copytree(source, path / each)  # with its byte code
        else:
            shutil.copy2(source, path / each)
    reader = Reader(guide(name), path)
    server = fork_server.server().fileno()
    reader.descriptors = (server,)
    reader.env["PATH"] = f"{_commands(tmp_path / 'bin', server)}{os.pathsep}{reader.env['PATH']}"
    return reader


def _commands(folder: Path, server: int) -> Path:
    """The commands of an activated environment: they may not be on the path of who runs the tests."""
    forked = f"{shlex.quote(forked_command.__file__)} {server}"
    commands = {
        "python": '"$@"',
        "pip": '-m pip "$@" --dry-run',
        "pytest": '-P -m pytest "$@"',
        "noesium": f'-IS {forked} "$@"',
        "opentelemetry-instrument": f'-P -c "{_OPENTELEMETRY}" "$@"',
    }
    folder.mkdir()
    for name, arguments in commands.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}\n', encoding="utf-8")
        script.chmod(0o755)
    return folder


def same_tree(printed: str, tree: str) -> bool:
    """Whether `printed` has the lines of a run's tree, ids and durations aside."""

    def bare(text: str) -> list[str]:
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[\d.]+ (ms|s)\b", "…", text)
        return [" ".join(line.split()) for line in text.splitlines()]

    lines, wanted = bare(printed), bare(tree)
    return wanted in [lines[at : at + len(wanted)] for at in range(len(lines))]
