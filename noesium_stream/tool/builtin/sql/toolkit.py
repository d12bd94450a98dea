"""The built-in toolkit `sql`: statements on an SQLite file, or on a Postgres server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from noesium_stream.errors import ToolInputError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.event.trust.permission import covering
from noesium_stream.tool.atomic import AtomicTool, NeedsFinder, ToolSource
from noesium_stream.tool.builtin.sql.config import SqlConfig
from noesium_stream.tool.builtin.sql.database import (
    Changed,
    Check,
    Column,
    Database,
    Rows,
    Statement,
    Table,
    Value,
    require,
)
from noesium_stream.tool.builtin.sql.sqlite import SqliteDatabase
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.extra import import_extra
from noesium_stream.tool.function import tool
from noesium_stream.tool.toolkit import BaseToolkit, ToolkitConfig, register_toolkit

MAX_SQL: Final = 50_000
"""Characters of a statement."""

Sql = Annotated[str, Field(min_length=1, max_length=MAX_SQL, pattern=r"^[^\x00]*$")]
Parameters = Annotated[Sequence[Value], Field(max_length=500)]
_POSTGRES: Final = "noesium_stream.tool.builtin.sql.postgres"


@register_toolkit("sql")
class SqlToolkit(BaseToolkit):
    """Tables of one database. Which tables a statement may touch is what the agent is granted.

    `sql:read:TABLE` and `sql:write:TABLE` are found by the database itself before the call, and judged as the
    needs of any tool; and again with the statement that is executed.
    """

    name: ClassVar[str] = "sql"
    Config: ClassVar[type[ToolkitConfig]] = SqlConfig
    source: ClassVar[ToolSource] = ToolSource.BUILTIN
    config: SqlConfig

    def __init__(self, config: ToolkitConfig | None = None, **settings: Any) -> None:
        super().__init__(config, **settings)
        self._database = self._made()

    def tools(self) -> list[AtomicTool]:
        """`sql_list_tables`, `sql_describe_table`, `sql_query`, and `sql_execute` if it is writable."""
        finders: Mapping[str, NeedsFinder] = {
            "list_tables": self._needs_of_listing,
            "query": partial(self._needs, False),
            "execute": partial(self._needs, True),
        }
        found = []
        for one in super().tools():
            if one.name == "execute" and not self.config.writable:
                continue
            kind = one.side_effect_class
            if one.name == "execute" and self.config.keys_table is not None:
                kind = SideEffectClass.IDEMPOTENT
            found.append(
                replace(
                    one,
                    name=f"{self.config.name}_{one.name}",
                    toolkit_name=self.config.name,
                    side_effect_class=kind,
                    labels=self.config.labels,
                    permissions=tuple(
                        one.replace("sql:read:", f"sql:read:{self.config.prefix}") for one in one.permissions
                    ),
                    timeout_ms=round(self.config.timeout_s * 1_000) + 20_000,
                    find_needs=finders.get(one.name),
                )
            )
        return found

    @tool(side_effects=SideEffectClass.PURE, tags=("category:database",))
    async def list_tables(self, context: ToolContext) -> list[Table]:
        """List the tables and views that may be read or changed."""
        return [one for one in await self._database.tables() if self._is_open(one["name"], context)]

    @tool(side_effects=SideEffectClass.PURE, permissions=("sql:read:{table}",), tags=("category:database",))
    async def describe_table(
        self, table: Annotated[str, Field(min_length=1, max_length=500)]
    ) -> list[Column]:
        """Describe the columns of a table, by its name in the list of tables."""
        columns = await self._database.columns(table)
        if not columns:
            raise ToolInputError(f"There is no table {short(table)}.")
        return columns

    @tool(side_effects=SideEffectClass.PURE, tags=("category:database",))
    async def query(self, sql: Sql, context: ToolContext, parameters: Parameters = ()) -> Rows:
        """Execute one SELECT statement. Give values as parameters, and not in its text."""
        return await self._database.query(Statement(sql, parameters), self._check(context))

    @tool(side_effects=SideEffectClass.EXTERNAL, tags=("category:database",))
    async def execute(self, sql: Sql, context: ToolContext, parameters: Parameters = ()) -> Changed:
        """Execute one INSERT, UPDATE or DELETE statement. Give values as parameters, and not in its text."""
        call_id = None if self.config.keys_table is None else context.call_id
        statement = Statement(sql, parameters, writes=True)
        return await self._database.execute(statement, self._check(context), call_id)

    async def _needs(self, writes: bool, arguments: dict[str, Any], context: ToolContext) -> Sequence[str]:
        statement = Statement(arguments["sql"], arguments.get("parameters", ()), writes)
        return (await self._database.touched(statement)).needs(self.config.prefix)

    async def _needs_of_listing(self, arguments: dict[str, Any], context: ToolContext) -> Sequence[str]:
        return [one for one in context.granted_permissions if one.split(":")[:2] == ["sql", "read"]]

    def _is_open(self, table: str, context: ToolContext) -> bool:
        need = f"sql:read:{self.config.prefix}{table}"
        return covering(context.granted_permissions, need) is not None

    def _check(self, context: ToolContext) -> Check:
        return partial(require, context.granted_permissions, self.config.prefix)

    def _made(self) -> Database:
        config = self.config
        if config.path is not None:
            return SqliteDatabase(config.path.absolute(), config.limits, config.keys_table)
        module = import_extra(_POSTGRES, "postgres", "The toolkit sql on a Postgres server")
        made: Database = module.PostgresDatabase(config)
        return made
