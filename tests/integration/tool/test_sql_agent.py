"""SQL under the executor: refused before it begins, made once across crashes, and not called by a replay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, SqlToolkit
from tests.support.postgres import Postgres, running_postgres
from tests.support.sql_tools import content, shop


class Asking(TypedDict, total=False):
    tool: str
    sql: str
    rows: Any


async def ask(state: Asking) -> Asking:
    return {"rows": (await current_step().tool(state["tool"], sql=state["sql"]))["rows"]}


def clerk(toolkit: SqlToolkit, *permissions: str, mode: Mode = Mode.AUTO) -> Any:
    kind = agent_from_graph(StateGraph(Asking).add_node("ask", ask).add_edge(START, "ask"), "clerk")
    kind.tools, kind.permissions, kind.mode = (toolkit,), permissions, mode
    return kind


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        yield postgres


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if request.param == "sqlite":
        return {"path": shop(tmp_path)}
    monkeypatch.setenv("SHOP_DSN", request.getfixturevalue("server").shop("shop"))
    return {"dsn_env": "SHOP_DSN"}


async def test_a_query_is_made_once_and_a_replay_calls_nothing(settings: dict[str, Any]) -> None:
    kind = clerk(SqlToolkit(**settings), "sql:read:orders", "fs:read", mode=Mode.ASK)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"tool": "sql_query", "sql": "SELECT item FROM orders ORDER BY id"})
        assert (await run.result())["rows"] == [["tea"], ["oil"]]
        events = await run.history()
        handle = await rehearsal.client.get_run(run.id)
        assert (await verify(handle, agent_target(kind, rehearsal.log))).difference is None
    begun, ended = (event.payload for event in events if event.event_type.startswith("tool."))
    assert begun["permissions"] == ["sql:read:orders"]
    assert ended["labels"] == ["database"]


@pytest.mark.parametrize(
    ("tool", "sql", "kind", "mode"),
    [
        ("sql_query", "SELECT word FROM words", "permission", Mode.AUTO),
        ("sql_execute", "UPDATE orders SET cents = 0", "permission", Mode.AUTO),
        ("sql_execute", "INSERT INTO journal VALUES ('x')", "mode", Mode.ASK),
        ("sql_query", "DROP TABLE orders", "input", Mode.AUTO),
    ],
)
async def test_a_statement_beyond_the_grants_is_denied_and_not_executed(
    settings: dict[str, Any], tool: str, sql: str, kind: str, mode: Mode
) -> None:
    agent = clerk(SqlToolkit(**settings, writable=True), "sql:read:words", "sql:write:journal", mode=mode)
    async with Rehearsal(agent) as rehearsal:
        run = await rehearsal.start({"tool": tool, "sql": sql})
        with pytest.raises(RunFailedError):
            await run.result()
        events = await run.history()
    (denied,) = [event for event in events if event.event_type.startswith("tool.")]
    assert (denied.event_type, denied.payload["kind"]) == ("tool.denied", kind)


async def test_a_change_with_keys_is_made_once_across_a_crash(settings: dict[str, Any]) -> None:
    """The process dies when the change is committed and its end is not recorded."""
    toolkit = SqlToolkit(**settings, writable=True, keys_table="calls")
    async with Rehearsal(clerk(toolkit, "sql:write:journal", "sql:read:journal")) as rehearsal:
        rehearsal.crash_before("tool.completed")
        run = await rehearsal.start(
            {"tool": "sql_execute", "sql": "INSERT INTO journal VALUES ('once') RETURNING line"}
        )
        assert (await run.result())["rows"] == [["once"]]
        assert rehearsal.crashes == 1
        run = await rehearsal.start({"tool": "sql_query", "sql": "SELECT line FROM journal"})
        assert (await run.result())["rows"] == [["once"]]


async def test_a_change_without_keys_is_not_made_again_after_a_crash(tmp_path: Path) -> None:
    path = shop(tmp_path)
    toolkit = SqlToolkit(path=path, writable=True)
    async with Rehearsal(clerk(toolkit, "sql:write:journal")) as rehearsal:
        rehearsal.crash_before("tool.completed")
        run = await rehearsal.start({"tool": "sql_execute", "sql": "INSERT INTO journal VALUES ('once')"})
        await run.wait_for("effect.outcome.unknown")
    assert content(path, "journal") == [("once",)]
