r"""The analyst as an agent: read the schema, write SQL, run it, show it.

look -> write -> run -> show
          ^       |
          +-------+   a statement that was refused goes back with its error, with a model, three times at most

Decision record: no figure passes through a model. It writes the statement; the database computes, and the
table and the chart are made of its rows by plain code.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field

from agents.analyst.answering import about_schema, answered, cannot, refused
from agents.analyst.asking import MAX_QUESTION, AboutSchema, understood
from agents.analyst.chart import chart_of
from agents.analyst.databases import MAX_NAME, Databases
from agents.analyst.plan import CannotAnswer, sql_of
from agents.analyst.prompting import WrittenSql, prompt_for
from agents.analyst.toolkit import AnalystToolkit
from noesium_stream.agent import AgentContext, BaseGraphicAgent
from noesium_stream.errors import (
    ConfigError,
    ModelAnswerError,
    ToolExecutionError,
    ToolInputError,
    ToolPermissionError,
)
from noesium_stream.event.envelope_fields import short
from noesium_stream.kernel import current_step, kernel_node

MAX_TRIES: Final = 3
"""Statements that a model may write for one question."""

_NO: Final = (ToolInputError, ToolPermissionError, ToolExecutionError)


class AnalystOptions(BaseModel):
    """What the analyst can be told."""

    database: str | None = Field(
        default=None,
        description="Database of questions that name none: an SQLite file, or env:VARIABLE for Postgres.",
    )
    folder: Path = Field(default=Path("."), description="Folder whose SQLite files questions may name.")
    charts: Path | None = Field(default=None, description="Folder for charts. Default: one under the home.")
    model: str | None = Field(
        default=None, description="Let this model write the SQL, as PROVIDER:NAME. Default: a fixed grammar."
    )


class AnalystState(TypedDict, total=False):
    """The state of a run; all of it is JSON."""

    question: str
    database: str | None
    schema: dict[str, Any]
    sql: str | None
    parameters: list[Any]
    tries: Annotated[list[dict[str, str]], operator.add]
    found: dict[str, Any]
    outcome: dict[str, Any]


class Analyst(BaseGraphicAgent):
    """Answers a question over a database with a table and a chart, or says why it cannot."""

    agent_type = "analyst"
    version = "1.0.0"
    Options = AnalystOptions
    permissions = ("sql:read", "fs:write:charts/**")

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        self.options = AnalystOptions.model_validate(options.model_dump())
        databases = Databases(self.options.database, self.options.folder, context.home)
        databases.check()
        # Of the instance: which databases there are is said by this worker's options.
        self.tools = (AnalystToolkit(databases),)  # type: ignore[misc]
        if self.options.charts is not None:
            self.workspace = str(self.options.charts)  # type: ignore[misc]

    @classmethod
    def input_from_question(cls, question: str, options: BaseModel) -> dict[str, Any]:
        """The question, over the database of the options.

        Raises:
            ConfigError: the question is empty or too long.
        """
        return _checked({"question": question, "database": None})

    @classmethod
    def check_input(cls, input: dict[str, Any]) -> None:
        """Raises `ConfigError`: it is not `{question, database}`."""
        _checked(input)

    @classmethod
    def check_start(cls, input: dict[str, Any], options: BaseModel, home: Path) -> None:
        """Raises `ConfigError`: there is no database that the question, or else the options, name."""
        chosen = AnalystOptions.model_validate(options.model_dump())
        Databases(chosen.database, chosen.folder, home).check_question(_checked(input)["database"])

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        """Begin with `{question, database}`.

        Raises:
            ConfigError: the input is something else.
        """
        return {**_checked(input), "tries": []}

    def result(self, state: dict[str, Any]) -> Any:
        """`{answer, outcome, sql, parameters, columns, rows, truncated, chart}`; see `answering`.

        `outcome` is `answer`; or `cannot`: the question is not understood, or not answered by the tables; or
        `refused`: the database has accepted no statement.
        """
        return state["outcome"]

    def get_state_class(self) -> type[Any]:
        """See `AnalystState`."""
        return AnalystState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(AnalystState)
        graph.add_node("look", self.look)
        graph.add_node("write", self.write)
        graph.add_node("run", self.run)
        graph.add_node("show", self.show)
        graph.add_edge(START, "look")
        graph.add_edge("look", "write")
        graph.add_conditional_edges("write", self.next_after_write, ["write", "run", END])
        graph.add_conditional_edges("run", self.next_after_run, ["write", "show", END])
        graph.add_edge("show", END)
        return graph

    async def look(self, state: AnalystState) -> dict[str, Any]:
        """Read the schema, as far as it may be read."""
        step, pages = current_step(), []
        following: int | None = 0
        while following is not None:
            page = await step.tool("analyst_schema", database=state["database"], after=following)
            pages.append(page)
            following = page["next"]
        tables = [table for page in pages for table in page["tables"]]
        cut = any(page["cut"] for page in pages)
        return {"schema": {"dialect": pages[0]["dialect"], "tables": tables, "cut": cut}}

    @kernel_node(deterministic=False, entropy_sources=["model"])
    async def write(self, state: AnalystState) -> dict[str, Any]:
        """Write the statement: by the model, or by the grammar of `asking`."""
        schema = state["schema"]
        if not schema["tables"]:
            return {"outcome": cannot("there is no table that I may read", has_model=True)}
        if self.llm is None:
            return self._by_grammar(state["question"], schema)
        prompt = prompt_for(state["question"], schema["dialect"], schema["tables"], state["tries"])
        try:
            written: WrittenSql = await self.llm.structured(prompt, WrittenSql)
        except ModelAnswerError as error:
            return self._failed(state, "", error.message)
        if not written.sql.strip():
            reason = written.cannot.strip() or "the model wrote no statement"
            return {"sql": None, "outcome": cannot(reason, has_model=True)}
        return {"sql": written.sql, "parameters": []}

    async def run(self, state: AnalystState) -> dict[str, Any]:
        """Have the database execute the statement, which it may refuse."""
        sql = state["sql"]
        assert sql is not None
        try:
            found = await current_step().tool(
                "analyst_query", database=state["database"], sql=sql, parameters=state["parameters"]
            )
        except _NO as error:
            return self._failed(state, sql, error.message)
        return {"found": found}

    async def show(self, state: AnalystState) -> dict[str, Any]:
        """Make the answer: the table, and a chart where one fits."""
        step, found, sql = current_step(), state["found"], state["sql"]
        assert sql is not None
        chart = chart_of(state["question"], found["columns"], found["rows"])
        path, note = None, None
        if chart is not None and not found["truncated"]:
            try:
                drawn = await step.tool("analyst_chart", path=f"charts/{step.run_id}.svg", chart=chart)
                path = drawn["path"]
            except _NO as error:
                note = f"There is no chart: {error.message}"
        return {"outcome": answered(found, sql, state["parameters"], path, note)}

    def next_after_write(self, state: AnalystState) -> str:
        """To the database, if there is a statement."""
        if "outcome" in state:
            return END
        return "write" if state.get("sql") is None else "run"

    def next_after_run(self, state: AnalystState) -> str:
        """To the answer, or back to the model with the error."""
        if "outcome" in state:
            return END
        return "show" if "found" in state else "write"

    def _by_grammar(self, question: str, schema: dict[str, Any]) -> dict[str, Any]:
        tables = schema["tables"]
        try:
            asked = understood(question, tables)
        except CannotAnswer as error:
            return {"outcome": cannot(str(error), has_model=False)}
        if isinstance(asked, AboutSchema):
            return {"outcome": about_schema(tables, asked.table, cut=schema["cut"])}
        columns = next(one["columns"] for one in tables if one["name"] == asked.table)
        keys = [one["name"] for one in sorted(columns, key=lambda one: one["key"]) if one["key"]]
        sql, parameters = sql_of(asked, schema["dialect"], keys)
        return {"sql": sql, "parameters": parameters}

    def _failed(self, state: AnalystState, sql: str, error: str) -> dict[str, Any]:
        """A statement that is none: it is tried again, or the run says so."""
        tried = {"sql": sql, "error": error}
        tries = [*state["tries"], tried]
        if self.llm is not None and len(tries) < MAX_TRIES:
            return {"tries": [tried], "sql": None}
        return {"tries": [tried], "outcome": refused(tries)}


def _checked(input: dict[str, Any]) -> dict[str, Any]:
    question, database = input.get("question"), input.get("database")
    unknown = sorted(set(input) - {"question", "database"})
    if unknown:
        raise ConfigError(
            f"The input has {short(unknown[0])}, which the analyst does not take.",
            hint='Give {"database": "shop.db", "question": "How many orders by status?"}',
        )
    if not isinstance(question, str) or not any(c.isalnum() for c in question):
        raise ConfigError("The question is empty.", hint="Ask in one sentence, in quotes.")
    if len(question) > MAX_QUESTION:
        raise ConfigError(f"The question has {len(question):,} characters; {MAX_QUESTION:,} are possible.")
    if database is not None and (not isinstance(database, str) or not 0 < len(database) <= MAX_NAME):
        raise ConfigError(f"`database` is the name of a database, and not {short(database)}.")
    return {"question": question.strip(), "database": database}
