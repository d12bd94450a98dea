"""Shared parts of the commands: options for settings, and the open log."""

from __future__ import annotations

import asyncio
import functools
import getpass
import logging
import re
import shlex
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from noesium_stream.cli.misspelt import note_misspelt_variables
from noesium_stream.cli.output import LogFormatter, note
from noesium_stream.cli.signals import begins
from noesium_stream.client import Client, Run
from noesium_stream.client.client import CLIENT_TYPE
from noesium_stream.config import DEFAULT, Loaded, load_all
from noesium_stream.errors import LogUnavailableError, NoesiumError, RunNotFoundError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.trust.trusted_key import AGENT, ROLE
from noesium_stream.log import EventLog, Topology, open_log
from noesium_stream.log.trust import own_key
from noesium_stream.log.url import parse_url
from noesium_stream.private_files import make_folder

_T = TypeVar("_T")
_Command = TypeVar("_Command", bound=Callable[..., Any])
_READER: Final = AgentRef("cli", "client")

_READING: Final = re.compile(r"noesium (?:show|runs|effects|approvals)\b(?: [0-9a-f-]{8,36})?")


def _log_option(addresses: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--log",
        "log_url",
        metavar="URL",
        help=f"The event log: {addresses}. [default: NOESIUM_LOG, else a SQLite file in NOESIUM_HOME]",
    )


log_option: Final = _log_option("memory://, sqlite:///PATH, kafka://HOST:PORT")
shared_log_option: Final = _log_option("sqlite:///PATH, kafka://HOST:PORT")
"""Option `--log` of a command that has no use on a log in memory, which no other process sees."""

PARTITIONS_OPTION: Final = "--partitions"
"""Source in `Loaded.sources` of a number of partitions given on the command line."""

state_option: Final = click.option(
    "--state",
    "state_dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where projections keep their states. [default: a folder in NOESIUM_HOME, one per log]",
)
where_option: Final = click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only of runs like this: 'customer=7 and status=open'; all conditions count. Names are search "
    "attributes, fields of the input, and agent, version, status, parent, by, fairness_key, requested, "
    "started, ended, error, schedule, run. See noesium guide operate.",
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")


def given_run(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty RUN: it is a prefix of every id, but the user meant a certain run."""
    if value is not None and not value.strip():
        raise click.UsageError("RUN is empty: give a run id or the beginning of one.", ctx)
    return value


def settings(log_url: str | None = None, **options: Any) -> Loaded:
    """Load the settings in force for this command line; also set the logging level."""
    loaded = load_all({"log": log_url, **options})
    note_misspelt_variables()
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=loaded.noesium.log_level, handlers=[handler])
    return loaded


@asynccontextmanager
async def opened(
    log_url: str | None, catalogue: Catalogue | None = None, *, make: bool = False
) -> AsyncIterator[EventLog]:
    """Open the log of the command line, and close it at the end; it must exist, unless `make`.

    Raises:
        LogUnavailableError: there is no such log.
    """
    loaded = settings(log_url)
    if not make:
        must_exist(loaded)
    with copyable(loaded):
        log = await open_configured(loaded, catalogue)
        try:
            yield log
        finally:
            await log.close()


@asynccontextmanager
async def asking(
    log_url: str | None, agent_type: str, waiting: str, *, make: bool = False
) -> AsyncIterator[tuple[Client, Path]]:
    """A client that asks an agent of this package, and the folder of projections; see `opened`.

    At the end a note says that `waiting` wait, if no worker of the agent runs.
    """
    async with opened(log_url, make=make) as log, Client(log, agent_id=await acting_name(log)) as client:
        loaded = settings(log_url)
        yield client, projections_folder(loaded, None)
        if not await log.members(log.topology.workers(agent_type)):
            worker = f"noesium worker agents.{agent_type}{on_log(loaded)}"
            note(f"no {agent_type} runs: {waiting} wait for `{worker}`")


def on_log(loaded: Loaded) -> str:
    """Return the option for commands on the same log: ` --log URL` if that was given, else nothing."""
    return f" --log {shlex.quote(loaded.shown_log)}" if loaded.sources["log"] == "--log" else ""


@contextmanager
def copyable(loaded: Loaded) -> Iterator[None]:
    """Add the log, if it was given, to the commands in errors' hints, so that they can be copied."""
    try:
        yield
    except NoesiumError as error:
        if error.hint is not None:
            error.hint = _READING.sub(lambda found: found[0] + on_log(loaded), error.hint)
        raise


def exists(loaded: Loaded) -> bool:
    """Whether the log may exist; False only for a log in a file that is missing."""
    return not _is_missing(loaded.noesium.log)


def must_exist(loaded: Loaded) -> None:
    """Refuse a log in a missing file: reading must not create a log because of a typo in the address.

    Raises:
        LogUnavailableError: the file is missing.
    """
    if not exists(loaded):
        raise LogUnavailableError(
            f"There is no log at {loaded.shown_log} yet.",
            hint="`noesium run` and `noesium worker` make one; another address: --log or NOESIUM_LOG.",
        )


def projections_folder(loaded: Loaded, given: Path | None) -> Path:
    """Return the folder of this log's projection states: `--state`, else a folder of NOESIUM_HOME."""
    if given is not None:
        return given.expanduser().absolute()
    return loaded.noesium.home / "projections" / sha256(loaded.noesium.log.encode()).hexdigest()[:12]


async def open_configured(loaded: Loaded, catalogue: Catalogue | None = None) -> EventLog:
    """Open the log of these settings; create its file's folder if that is the default one.

    A new file at an address that the user wrote is announced, because the address may have a typo.

    Raises:
        LogUnavailableError: the log does not answer, or the folder cannot be created.
    """
    config = loaded.noesium
    chosen = loaded.sources["log"] != DEFAULT
    if not chosen:
        try:
            make_folder(config.home)
        except OSError as error:
            raise LogUnavailableError(
                f"The folder {config.home} cannot be made: {error.strerror}.",
                hint="It is for the log and more: say with NOESIUM_HOME where you may write, or work in "
                "another folder.",
            ) from error
    is_new = chosen and _is_missing(config.log)
    log = await open_log(config.log, topology=_topology(loaded), catalogue=catalogue)
    if is_new:
        note(f"new log at {loaded.shown_log}")
    return log


def _topology(loaded: Loaded) -> Topology:
    config = loaded.noesium
    configured = Topology(config.namespace, config.partitions)
    asked = parse_url(config.log).topology(configured)
    if loaded.sources["partitions"] == PARTITIONS_OPTION:  # the option overrides the URL
        return replace(asked, partitions=config.partitions)
    return asked


def _is_missing(url: str) -> bool:
    parsed = parse_url(url)
    return parsed.scheme == "sqlite" and not Path(parsed.path.removeprefix("/")).expanduser().exists()


async def find_run(client: Client, run_id: str | None) -> Run:
    """Find a run by its id or a prefix of it; by default the newest run that no other run has called.

    Raises:
        RunNotFoundError: there is no such run.
    """
    if run_id is not None:
        return await client.get_run(run_id)
    for info in await client.list_runs():
        if info.parent_run_id is None:
            return client.run_handle(info.agent_type, info.run_id)
    raise RunNotFoundError(
        f"There are no runs on {client.log.url} yet.", hint="Start one: noesium run --help"
    )


async def acting_name(log: EventLog, name: str | None = None) -> str:
    """The name in which a command asks: `name`, else that of the key that it signs with, else `client`.

    A key names somebody if it speaks for one person or program; others are named by --as.
    """
    if name is not None:
        return name
    key = await own_key(log)
    names = [] if key is None or key.speaks_for_everybody else sorted(key.speaks_for)
    people = [found for found in names if not found.startswith((AGENT, ROLE))]
    return people[0] if len(people) == 1 else CLIENT_TYPE


async def deciding_name(log: EventLog, name: str | None = None) -> str:
    """The name of the person who decides: as `acting_name`, else the user's at this machine."""
    found = await acting_name(log, name)
    return getpass.getuser() if found == CLIENT_TYPE else found


def is_embedded(url: str) -> bool:
    """Whether the log at `url` needs no broker, so that agents can run in the calling process."""
    return parse_url(url).scheme in ("memory", "sqlite")


@asynccontextmanager
async def closing(source: AsyncIterator[_T]) -> AsyncIterator[AsyncIterator[_T]]:
    """Close a reader of the log on exit, even early, while the event loop still runs."""
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


def asynchronous(command: Callable[..., Coroutine[Any, Any, _T]]) -> Callable[..., _T]:
    """Make a command from a coroutine function; SIGTERM ends it as Ctrl-C does."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> _T:
        begins()
        told = False

        async def main() -> _T:
            task = asyncio.current_task()

            def stop() -> None:
                nonlocal told
                told = True
                if task is not None:
                    task.cancel()

            here = threading.current_thread() is threading.main_thread()
            # Commands that end in another way have a handler of their own already.
            if here and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
            return await command(*args, **kwargs)

        try:
            return asyncio.run(main())
        except asyncio.CancelledError:
            if told:
                raise KeyboardInterrupt from None
            raise

    return run
