"""A real process is killed in the middle of code that a model has written; another one goes on with it."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from noesium_stream.client import Client
from noesium_stream.log import open_log
from tests.support.command import Folder
from tests.support.reading import PATIENCE_S

MODULE = """
import time
from pathlib import Path
from typing import Any, TypedDict
from langgraph.graph import START, StateGraph
from noesium_stream import BaseGraphicAgent, SideEffectClass, current_step
from noesium_stream.tool import CodeToolkit, Mode, tool

@tool
def note(line: str) -> int:
    with Path("notes").open("a") as notes:
        notes.write(f"{line}\\n")
    return len(line)

@tool(side_effects=SideEffectClass.IDEMPOTENT)
def wait(name: str) -> str:
    Path("waiting").touch()
    while not Path(name).exists():
        time.sleep(0.01)
    return Path(name).read_text()

class State(TypedDict, total=False):
    code: str
    said: Any

async def work(state: State) -> State:
    return {"said": await current_step().tool("code", code=state["code"])}

class Desk(BaseGraphicAgent):
    agent_type = "desk"
    tools = (CodeToolkit(), note, wait)
    mode = Mode.AUTO

    def get_state_class(self) -> type:
        return State

    def _build_graph(self) -> StateGraph:
        return StateGraph(State).add_node("work", work).add_edge(START, "work")

AGENT = Desk
"""
CODE = """
import random
chance = random.random()
first = note(line="before")
said = wait(name="go")
second = note(line=said)
[first, second, said, chance]
"""


async def test_code_goes_on_in_another_process_and_no_call_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(MODULE)
    folder = Folder(tmp_path)
    with folder.running("run", "desk", "--input", json.dumps({"code": CODE})) as killed:
        killed.wait_for(lambda _: (tmp_path / "waiting").exists())
        killed.signal(signal.SIGKILL)
        killed.wait()
    assert (tmp_path / "notes").read_text() == "before\n"
    (tmp_path / "go").write_text("after")
    with folder.running("worker", "desk"):
        log = await open_log(f"sqlite:///{tmp_path}/.noesium/log.db")
        async with Client(log) as client, asyncio.timeout(PATIENCE_S):
            [info] = await client.list_runs()
            run = await client.get_run(info.run_id)
            said = (await run.result())["said"]
        await log.close()
    assert said["value"][:3] == [6, 5, "after"]
    assert (tmp_path / "notes").read_text() == "before\nafter\n"
