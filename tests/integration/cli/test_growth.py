"""`noesium topics grow` while workers run: open runs stay, new ones go elsewhere, each is done once."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import RunCancelledError
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.command import Folder, Running
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, eventually

CLERK = '''
from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.kernel import current_step


class State(TypedDict, total=False):
    question: str
    answer: str


def pay(what: str, idempotency_key: str) -> str:
    with Path("paid.txt").open("a", encoding="utf-8") as file:
        file.write(f"{what}\\n")
    return what


class Clerk(BaseGraphicAgent):
    """Asks before it pays."""

    agent_type = "clerk"

    def get_state_class(self):
        return State

    def _build_graph(self):
        graph = StateGraph(State)
        graph.add_node("ask", self.ask)
        graph.add_edge(START, "ask")
        graph.add_edge("ask", END)
        return graph

    async def ask(self, state: State):
        verdict = await current_step().interrupt(f"Pay {state['question']}?")
        paid = await current_step().effect("pay", pay, state["question"])
        return {"answer": f"{verdict.decision} {paid}"}


AGENT = Clerk
'''


@pytest.fixture(params=["sqlite", "kafka"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text('"""Toys."""\n')
    (tmp_path / "agents" / "clerk.py").write_text(CLERK)
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/log.db?partitions=2"
    else:
        kafka: KafkaServer = request.getfixturevalue("kafka")
        url = f"{kafka.url(request.getfixturevalue('namespace'))}&partitions=2"
    return Folder(tmp_path, NOESIUM_LOG=url)


async def start(client: Client, name: str, *, keyed: bool) -> Run:
    return await client.start("clerk", {"question": name}, idempotency_key=name if keyed else None)


async def asked(runs: list[Run]) -> None:
    async def all_have() -> bool:
        return all([[one.status for one in await run.approvals()] == ["open"] for run in runs])

    await eventually(all_have, PATIENCE_S)


async def starts(log: EventLog, topic: str) -> Counter[str]:
    found: Counter[str] = Counter()
    async for record in log.read(topic, {}, until=await log.end(topic), types=("run.started",)):
        found[record.key] += 1
    return found


def generations(folder: Folder) -> list[tuple[int, int, int]]:
    rows: list[dict[str, Any]] = folder.json("topics", "generations", "clerk", "--json")
    return [(row["generation"], row["partitions"], row["open_runs"]) for row in rows]


async def test_an_agent_grows_while_its_runs_are_open_and_a_worker_is_killed(folder: Folder) -> None:
    log = await open_log(folder.env["NOESIUM_LOG"])
    with (
        folder.running("worker", "agents.clerk") as doomed,
        folder.running("worker", "agents.clerk") as other,
    ):
        for process in (doomed, other):
            process.wait_for_error_line("at work")
        async with Client(log) as client:
            await scenario(folder, log, client, doomed)
    await log.close()


async def scenario(folder: Folder, log: EventLog, client: Client, doomed: Running) -> None:
    old = [await start(client, f"old {n}", keyed=n % 2 == 0) for n in range(5)]
    await asked(old)
    folder.ok("topics", "grow", "clerk", "--partitions", "5")
    refused = folder.run("topics", "grow", "clerk", "--partitions", "5")
    assert refused.returncode == 2, refused.stderr
    assert "clerk has 5 partitions already, in generation 2" in refused.stderr
    again = [await start(client, f"old {n}", keyed=True) for n in (0, 2, 4)]
    assert [run.id for run in again] == [old[n].id for n in (0, 2, 4)]
    new = [await start(client, f"new {n}", keyed=n % 2 == 0) for n in range(5)]
    await asked(new)
    assert generations(folder) == [(1, 2, 5), (2, 5, 5)]
    doomed.signal(signal.SIGKILL)
    doomed.wait()
    folder.ok("cancel", old[4].id)
    folder.ok("cancel", new[4].id)
    folder.ok("approve", old[0].id)
    folder.ok("approve", new[0].id)
    for run in (*old[1:4], *new[1:4]):
        await run.approve()
    for n, (before, after) in enumerate(zip(old[:4], new[:4], strict=True)):
        assert await before.result(PATIENCE_S) == {"question": f"old {n}", "answer": f"approve old {n}"}
        assert await after.result(PATIENCE_S) == {"question": f"new {n}", "answer": f"approve new {n}"}
    for run in (old[4], new[4]):
        with pytest.raises(RunCancelledError):
            await run.result(PATIENCE_S)
    late = await start(client, "new 0", keyed=True)
    assert await late.result(PATIENCE_S) == {"question": "new 0", "answer": "approve new 0"}
    paid = Counter((folder.path / "paid.txt").read_text().splitlines())
    assert paid == Counter([*(f"old {n}" for n in range(4)), *(f"new {n}" for n in range(4))])
    first, second = log.topology.journal("clerk"), log.topology.journal("clerk", 2)
    assert await starts(log, first) == Counter(run.id for run in old)
    assert await starts(log, second) == Counter(run.id for run in new)
    assert generations(folder) == [(1, 2, 0), (2, 5, 0)]
    assert [line.split()[1] for line in folder.ok("workers").splitlines()[1:]] == [
        *("0", "1"),
        *(f"g2/{n}" for n in range(5)),
    ]
    assert len(folder.json("runs", "--json")) == 10
