"""The analyst's tools: the schema of a database, one SELECT statement, a chart as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from agents.analyst.chart import Chart, svg_of
from agents.analyst.databases import MAX_NAME, Databases
from noesium_stream.errors import ToolExecutionError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.event.trust.permission import covering
from noesium_stream.tool import AtomicTool, BaseToolkit, ToolContext, ToolSource, tool
from noesium_stream.tool.builtin.files_open import WorkspaceFiles
from noesium_stream.tool.builtin.sql.database import Column, Rows, Statement, Value, require
from noesium_stream.tool.content.set_aside import LIMIT_BYTES

MAX_SQL: Final = 20_000
MAX_TABLES: Final = 100
MAX_COLUMNS: Final = 60
MAX_IDENTIFIER: Final = 200
"""Tables, their columns, and the characters of a name that the analyst reads of a schema."""
MAX_PAGE: Final = LIMIT_BYTES * 3 // 4
"""Bytes of a result as JSON: a larger one would be set aside, where the graph does not see it."""
_CHART_BYTES: Final = 1_000_000
_TIMEOUT_MS: Final = 60_000

DatabaseName = Annotated[str | None, Field(max_length=MAX_NAME)]
Sql = Annotated[str, Field(min_length=1, max_length=MAX_SQL, pattern=r"^[^\x00]*$")]


class ColumnOfTable(TypedDict):
    """A column. `key`: its place in the primary key, from 1; 0: none."""

    name: str
    type: str
    key: int


class TableColumns(TypedDict):
    """A table or view with its columns."""

    name: str
    columns: list[ColumnOfTable]


class Schema(TypedDict):
    """What may be read of a database.

    `next`: give it as `after` for the tables that follow; None: there are no more. `cut`: some tables, or
    columns, are left out.
    """

    dialect: str
    tables: list[TableColumns]
    next: int | None
    cut: bool


class DrawnChart(TypedDict):
    """A chart in a file. `path`: on the machine of the worker."""

    path: str


class AnalystToolkit(BaseToolkit):
    """What the analyst does outside: it reads databases, as far as a call was granted, and writes charts.

    Which tables a statement touches is said by the database itself, as with `SqlToolkit`: it needs
    `sql:read:TABLE` of each, in a file that the question names `sql:read:FILE/TABLE`.
    """

    name: ClassVar[str] = "analyst"
    source: ClassVar[ToolSource] = ToolSource.USER

    def __init__(self, databases: Databases) -> None:
        super().__init__()
        self._databases = databases

    def tools(self) -> list[AtomicTool]:
        """`analyst_schema`, `analyst_query`, `analyst_chart`."""
        finders = {"query": self._needs, "schema": self._needs_of_schema}
        return [
            replace(
                one,
                name=f"analyst_{one.name}",
                timeout_ms=_TIMEOUT_MS,
                labels=() if one.name == "chart" else ("database",),
                find_needs=finders.get(one.name),
            )
            for one in super().tools()
        ]

    @tool(side_effects=SideEffectClass.PURE, tags=("category:database",))
    async def schema(
        self,
        database: DatabaseName,
        context: ToolContext,
        after: Annotated[int, Field(ge=0, le=MAX_TABLES)] = 0,
    ) -> Schema:
        """List the tables that may be read, with their columns, after so many that were listed before."""
        opened = self._databases.opened(database)
        every = [one["name"] for one in await opened.database.tables()]
        granted = context.granted_permissions
        open_ = [one for one in every if covering(granted, f"sql:read:{opened.prefix}{one}") is not None]
        named = [one for one in open_ if len(one) <= MAX_IDENTIFIER]
        page = Schema(dialect=opened.dialect, tables=[], next=None, cut=len(named) < len(open_))
        page["cut"] = page["cut"] or len(named) > MAX_TABLES
        for at, name in enumerate(named[after:MAX_TABLES], after):
            columns = await opened.database.columns(name)
            one = TableColumns(name=name, columns=_shown(columns))
            if page["tables"] and _size([*page["tables"], one]) > MAX_PAGE:
                page["next"] = at
                break
            page["tables"].append(one)
            page["cut"] = page["cut"] or len(one["columns"]) < len(columns)
        return page

    @tool(side_effects=SideEffectClass.PURE, tags=("category:database",))
    async def query(
        self,
        database: DatabaseName,
        sql: Sql,
        context: ToolContext,
        parameters: Annotated[Sequence[Value], Field(max_length=100)] = (),
    ) -> Rows:
        """Execute one SELECT statement, which only reads."""
        opened = self._databases.opened(database)
        check = partial(require, context.granted_permissions, opened.prefix)
        found = await opened.database.query(Statement(sql, parameters), check)
        if _size(found) > LIMIT_BYTES:
            raise ToolExecutionError("The result has too many columns.", hint="Select fewer of them.")
        return found

    @tool(
        side_effects=SideEffectClass.IDEMPOTENT,
        permissions=("fs:write:{path}",),
        tags=("category:files",),
    )
    def chart(
        self, path: Annotated[str, Field(max_length=200)], chart: Chart, context: ToolContext
    ) -> DrawnChart:
        """Draw a chart into a file of the workspace, as SVG."""
        context.working_directory.mkdir(parents=True, exist_ok=True)
        drawn = svg_of(chart).encode()
        WorkspaceFiles(context, _CHART_BYTES).update(path, lambda found: drawn, make=True)
        return {"path": str(context.working_directory / path)}

    async def _needs(self, arguments: dict[str, Any], context: ToolContext) -> Sequence[str]:
        opened = self._databases.opened(arguments["database"])
        statement = Statement(arguments["sql"], arguments.get("parameters", ()))
        return (await opened.database.touched(statement)).needs(opened.prefix)

    async def _needs_of_schema(self, arguments: dict[str, Any], context: ToolContext) -> Sequence[str]:
        return [one for one in context.granted_permissions if one.split(":")[:2] == ["sql", "read"]]


def _shown(columns: Sequence[Column]) -> list[ColumnOfTable]:
    """The first columns whose names are of a possible length."""
    return [
        {"name": one["name"], "type": one["type"][:60], "key": one["key"]}
        for one in columns[:MAX_COLUMNS]
        if len(one["name"]) <= MAX_IDENTIFIER
    ]


def _size(value: Any) -> int:
    return len(orjson.dumps(value))
