"""What a person declares about an MCP server and its tools; nothing of it comes from the server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import DeterminismClass, SideEffectClass
from noesium_stream.programs.program import Program
from noesium_stream.tool.atomic import DEFAULT_TIMEOUT_MS
from noesium_stream.tool.mcp.auth import Bearer, ClientCredentials
from noesium_stream.tool.mcp.walls import ServerSandbox

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Takes the parameters of a question, and gives `{"action": "accept", "content": {…}}`, or another action."""
MAX_MESSAGE: Final = 8 * 1024 * 1024
"""Most bytes of one message of a server by default."""
MAX_TOOLS: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_OPTIONS: Final = (
    "side_effects",
    "determinism",
    "permissions",
    "timeout",
    "tags",
    "labels",
    "max_concurrency",
    "max_retries",
    "version",
)
_LAUNCHERS: Final = frozenset(["npx", "bunx", "uvx", "pipx", "node", "python", "python3"])


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is said of one tool; by default the most careful.

    Attributes: as of `AtomicTool`; `permissions` and `labels` are beside `mcp:connect:NAME` and `mcp:NAME`.
    """

    side_effects: SideEffectClass = SideEffectClass.EXTERNAL
    determinism: DeterminismClass = DeterminismClass.NONDETERMINISTIC
    permissions: tuple[str, ...] = ()
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    max_concurrency: int | None = None
    max_retries: int = 0
    version: str = "1.0.0"


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server: how it is reached, and what is declared about its tools.

    Attributes:
        name: names it in ids, labels and the permission `mcp:connect:NAME`.
        program: a server that is started here and speaks over its pipes; None: it is at `url`.
        url: a server of streamable HTTP. Whoever wrote it has decided that this address may be used.
        auth: how HTTP requests are authorised.
        sandbox: the walls around the program; None: it runs as the worker's user, without any.
        declare: options by patterns of tools' names, as the server spells them (`find_*`); where several
            match, a later one goes before an earlier one, option by option.
        answer: answers questions that a server asks while a call waits; None: they are cancelled.
        max_message: most bytes of one message.
        max_tools: most tools; more are left out, with a warning.
        connect_timeout_s: how long a connection, with the list of tools, may take.
    """

    name: str
    program: Program | None = None
    url: str | None = None
    auth: ClientCredentials | Bearer | None = None
    sandbox: ServerSandbox | None = None
    declare: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    answer: Answer | None = None
    max_message: int = MAX_MESSAGE
    max_tools: int = MAX_TOOLS
    connect_timeout_s: float = 30.0

    def declaration(self, tool: str) -> Declaration:
        """What is declared about a tool of the server.

        Raises:
            ConfigError: an option is not known or not valid.
        """
        options: dict[str, Any] = {}
        for pattern, given in self.declare.items():
            if fnmatchcase(tool, pattern):
                options.update(given)
        return _declaration(self.name, options)


def server(
    target: str | Sequence[str],
    *,
    name: str | None,
    env: Sequence[str],
    folder: str | Path | None,
    auth: ClientCredentials | Bearer | None,
    sandbox: ServerSandbox | bool,
    declare: Mapping[str, Mapping[str, Any]],
    **limits: Any,
) -> McpServer:
    """A checked server; see `mcp`.

    Raises:
        ConfigError: names what is not valid.
    """
    at_url = isinstance(target, str) and target.startswith(("http://", "https://"))
    words = () if at_url else _words(target)
    made = McpServer(name or _name_of(str(target) if at_url else words), declare=dict(declare), **limits)
    if _NAME.fullmatch(made.name) is None or "__" in made.name:
        raise ConfigError(
            f"{made.name[:100]!r} cannot name an MCP server.",
            hint="Give a `name` of 1 to 32 letters, digits, - and _ , without __ .",
        )
    who = f"the MCP server {made.name}"
    for pattern, given in made.declare.items():
        unknown = sorted(set(given) - set(_OPTIONS))
        if unknown:
            raise ConfigError(
                f"The declaration {pattern!r} of {who} has no option {unknown[0]!r}.",
                hint=f"There are {', '.join(_OPTIONS)}.",
            )
        _declaration(made.name, given)
    if at_url and sandbox:
        raise ConfigError(f"{who} is at a URL: `sandbox` is for servers that are started here.")
    if at_url:
        return replace(made, url=_url(str(target), who), auth=auth)
    if auth is not None:
        raise ConfigError(f"{who} is a program: `auth` is for servers with a URL.", hint="Use `env`.")
    program = Program(
        words, ("PATH", *env), None if folder is None else Path(folder), max_answer=made.max_message
    )
    program.check(who)
    walls = ServerSandbox() if sandbox is True else sandbox or None
    if walls is not None:
        walls.check(program, who)
    return replace(made, program=program, sandbox=walls)


def _declaration(server_name: str, options: Mapping[str, Any]) -> Declaration:
    given = dict(options)
    timeout: Duration | None = given.pop("timeout", None)
    if timeout is not None:
        given["timeout_ms"] = max(1, round(in_seconds(timeout, "timeout", positive=True) * 1000))
    for several in ("permissions", "tags", "labels"):
        if isinstance(given.get(several, ()), str):
            raise ConfigError(f"`{several}` of the MCP server {server_name} is a text, not a list of texts.")
        given[several] = tuple(given.get(several, ()))
    try:
        given["side_effects"] = SideEffectClass(given.get("side_effects", SideEffectClass.EXTERNAL))
        given["determinism"] = DeterminismClass(given.get("determinism", DeterminismClass.NONDETERMINISTIC))
    except ValueError as error:
        raise ConfigError(f"The declaration of the MCP server {server_name}: {error}.") from None
    return Declaration(**given)


def _words(target: str | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(target, str):
        return tuple(target)
    try:
        return tuple(shlex.split(target))
    except ValueError as error:
        raise ConfigError(f"The command of an MCP server cannot be split into words: {error}.") from None


def _url(url: str, who: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname or parts.username or parts.password:
        raise ConfigError(
            f"The URL of {who} has {'a login' if parts.hostname else 'no host'}.",
            hint="Give the login by `auth`, from environment variables.",
        )
    return url


def _name_of(target: str | tuple[str, ...]) -> str:
    """A name for who gave none: the package that a launcher starts, the program, or the host."""
    if isinstance(target, str):
        return (urlsplit(target).hostname or "").replace(".", "-")[:32]
    plain = [word for word in target[1:] if not word.startswith("-")]
    launched = bool(target) and Path(target[0]).name in _LAUNCHERS
    word = plain[0] if launched and plain else (target[0] if target else "")
    stem = word.rsplit("/", 1)[-1].split("@")[0].split(".")[0]
    return re.sub(r"[^A-Za-z0-9-]+", "-", stem).strip("-")[:32]
