"""The databases that a question may name: those that the operator has set, and files of one folder.

Decision record: the name of a database comes from an input, which anybody may have written. So it never is a
connection string, and no path that leads out of the folder that the operator has given.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from noesium_stream.errors import ConfigError, ToolInputError
from noesium_stream.event.envelope_fields import short
from noesium_stream.tool.builtin.sql.config import SqlConfig
from noesium_stream.tool.builtin.sql.database import Database
from noesium_stream.tool.builtin.sql.sqlite import SqliteDatabase
from noesium_stream.tool.extra import import_extra

SERVER: Final = "env:"
"""Begins the name of a Postgres database: what follows is the variable with its connection string."""
MAX_NAME: Final = 200

_NAME: Final = re.compile(r"[\w./ -]{1,200}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_POSTGRES: Final = "noesium_stream.tool.builtin.sql.postgres"
MAX_RESULT: Final = 24_000
"""Bytes of a result's rows: a larger result would be set aside, where the graph does not see it."""
_MAGIC: Final = b"SQLite format 3\0"
_HINT: Final = "Give an SQLite file, or --database env:VARIABLE for a Postgres server."


@dataclass(frozen=True, slots=True)
class Opened:
    """A database, and how it is spoken of.

    Attributes:
        database: runs statements.
        dialect: `sqlite` or `postgres`.
        prefix: what stands before a table in permissions: nothing for the operator's own database.
    """

    database: Database
    dialect: str
    prefix: str


@dataclass(frozen=True)
class Databases:
    """Where questions look.

    Attributes:
        own: the database that the operator has set: a file, or `env:VARIABLE`; None: none.
        folder: whose SQLite files a question may name.
        home: the settings' home: no file in it is a database, because the logs of all agents are there.
    """

    own: str | None
    folder: Path
    home: Path

    def check(self) -> None:
        """Check what the operator has set.

        Raises:
            ConfigError: the folder is not there, the file is not there or is no SQLite file, or the variable
                has no possible name.
        """
        if not self.folder.is_dir():
            raise ConfigError(f"There is no folder {self.folder}.", hint="Give another one with --folder.")
        if self.own is None:
            return
        if self.own.startswith(SERVER):
            if _VARIABLE.fullmatch(self.own.removeprefix(SERVER)) is None:
                raise ConfigError(
                    f"{short(self.own)} names no variable.",
                    hint="Write it as env:SHOP_DSN, without the value.",
                )
        elif not Path(self.own).is_file():
            raise ConfigError(f"There is no database {self.own}.", hint=_HINT)
        else:
            self._check(self.own)

    def check_question(self, name: str | None) -> None:
        """Check that there is the database that a question names; a server is not asked.

        Raises:
            ConfigError: there is none of this name.
        """
        self.check()
        self._check(name)

    def _check(self, name: str | None) -> None:
        try:
            self._located(name)
        except ToolInputError as error:
            raise ConfigError(error.message, hint=error.hint) from None

    def opened(self, name: str | None) -> Opened:
        """The database of a name; None: the operator's own.

        Raises:
            ToolInputError: there is none of this name.
        """
        path = self._located(name)
        if path is None:
            assert self.own is not None
            return Opened(_server(self.own.removeprefix(SERVER)), "postgres", "")
        return Opened(_file(path), "sqlite", "" if name is None or name == self.own else f"{name}/")

    def _located(self, name: str | None) -> Path | None:
        """The file of a database; None: it is the operator's server."""
        if name is not None and name != self.own:
            return self._file(name)
        if self.own is None:
            raise ToolInputError(
                "The question names no database.",
                hint='Give one: --database shop.db, or the input {"database": "shop.db", "question": …}.',
            )
        if self.own.startswith(SERVER):
            return None
        return _checked(Path(self.own).absolute(), self.own)

    def _file(self, name: str) -> Path:
        if _NAME.fullmatch(name) is None or name.startswith("/") or ".." in name.split("/"):
            raise ToolInputError(
                f"{short(name)} is no database here.",
                hint="Name an SQLite file by its path in the analyst's folder (--folder).",
            )
        folder = self.folder.resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or path.is_relative_to(self.home.expanduser().resolve()):
            raise ToolInputError(
                f"{short(name)} is not in the analyst's folder.",
                hint="Name an SQLite file of the folder --folder that is not in the home.",
            )
        return _checked(path, name)


def _checked(path: Path, name: str) -> Path:
    """A path that is an SQLite file. What is none fails here, and is not tried again and again."""
    try:
        if not path.is_file():
            raise ToolInputError(f"There is no database {short(name)}.", hint=_HINT)
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise ToolInputError(
            f"The database {short(name)} cannot be opened: {error.strerror}.", hint=_HINT
        ) from None
    if head not in (_MAGIC, b""):
        raise ToolInputError(f"{short(name)} is no SQLite file.", hint=_HINT)
    return path


@lru_cache(maxsize=64)
def _file(path: Path) -> Database:
    config = SqlConfig(path=path, max_bytes=MAX_RESULT)
    return SqliteDatabase(path, config.limits)


@lru_cache(maxsize=8)
def _server(variable: str) -> Database:
    module = import_extra(_POSTGRES, "postgres", "The analyst on a Postgres server")
    made: Database = module.PostgresDatabase(SqlConfig(dsn_env=variable, max_bytes=MAX_RESULT))
    return made
