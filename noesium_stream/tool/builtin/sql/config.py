"""Settings of the toolkit `sql`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from noesium_stream.errors import ConfigError
from noesium_stream.tool.builtin.sql.database import Limits
from noesium_stream.tool.toolkit import ToolkitConfig

MIB: Final = 1024 * 1024
_DEFAULT: Final = "sql"


class SqlConfig(ToolkitConfig):
    """Settings of the toolkit `sql`, set by an operator; one of `path` and `dsn_env` names the database.

    Attributes:
        path: an SQLite file.
        dsn_env: the variable of the worker's environment that holds the connection string of a Postgres
            server, such as `postgresql://clerk:secret@db.example/shop`; needs the extra `postgres`.
        name: what the names of the tools begin with. Another one than `sql` is also a part of permissions:
            `sql:read:crm/orders`.
        writable: whether there is a tool `sql_execute`, for INSERT, UPDATE and DELETE. Without it connections
            only read.
        keys_table: a table with the columns `call_id` (text, primary key) and `result` (text), into which
            `sql_execute` writes its calls, each in the transaction of its change. It is idempotent then:
            after a crash it is called again, and what was committed is not repeated. None: it is external.
        schema_name: Postgres: the schema whose tables have permissions without a schema.
        functions: Postgres: functions with effects that statements may call nevertheless.
        labels: the provenance of results.
        max_rows, max_cell, max_bytes: of a result: rows, characters of a value, and bytes as JSON.
        timeout_s: the time of one statement, in seconds.
        memory_bytes: SQLite: memory of the process that executes one.
    """

    path: Path | None = None
    dsn_env: str | None = None
    name: str = Field(_DEFAULT, pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$")
    writable: bool = False
    keys_table: str | None = Field(None, pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    schema_name: str = Field("public", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")
    functions: tuple[str, ...] = ()
    labels: tuple[str, ...] = ("database",)
    max_rows: int = Field(200, ge=1, le=10_000)
    max_cell: int = Field(4_000, ge=16, le=1_000_000)
    max_bytes: int = Field(256 * 1024, ge=1_024, le=16 * MIB)
    timeout_s: float = Field(10.0, gt=0, le=600)
    memory_bytes: int = Field(256 * MIB, ge=64 * MIB)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.dsn_env is None):
            raise ValueError("give either path or dsn_env")
        return self

    @property
    def prefix(self) -> str:
        """What stands before the table in permissions."""
        return "" if self.name == _DEFAULT else f"{self.name}/"

    @property
    def limits(self) -> Limits:
        """The limits of one statement."""
        return Limits(self.max_rows, self.max_cell, self.max_bytes, self.timeout_s, self.memory_bytes)

    @property
    def dsn(self) -> str:
        """The connection string.

        Raises:
            ConfigError: the variable is not set.
        """
        dsn = os.environ.get(self.dsn_env or "", "")
        if not dsn:
            raise ConfigError(
                f"The connection string of the database is to be in {self.dsn_env}, which holds none.",
                hint=f"Set {self.dsn_env} in the worker's environment.",
            )
        return dsn
