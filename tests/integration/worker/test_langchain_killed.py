"""A real worker is killed while an agent of LangChain calls tools: nothing is asked or called twice."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.command import Folder
from tests.support.killed import Later, killed, until
from tests.support.reading import PATIENCE_S

MODULE = """
import asyncio
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool as langchain_tool

from noesium_stream import BaseGraphicAgent, SideEffectClass, journaled_model
from noesium_stream.tool import Mode, tool
from tests.support.scripted_chat import ScriptedChat, calling

MADE = Path({made!r})


def note(line):
    with MADE.open("a") as file:
        file.write(line + "\\n")


@tool(side_effects=SideEffectClass.PURE)
@langchain_tool
async def look_up(number: int) -> int:
    "Look an order up."
    note("look_up")
    return number * 100


@langchain_tool
async def refund(number: int) -> str:
    "Pay an order back, and never come back."
    note("refund")
    await asyncio.Event().wait()
    return ""


class Noted(ScriptedChat):
    def _generate(self, messages, *args, **kwargs):
        note(f"model {{len(messages)}}")
        return super()._generate(messages, *args, **kwargs)


class Clerk(BaseGraphicAgent):
    agent_type = "clerk"
    mode = Mode.AUTO

    def get_state_class(self):
        return dict

    def _build_graph(self):
        lines = [
            calling(("a", "look_up", {{"number": 7}})),
            calling(("b", "refund", {{"number": 7}}), ("c", "look_up", {{"number": 8}})),
            AIMessage("All done."),
        ]
        return create_agent(journaled_model(Noted(lines=lines)), [look_up, refund])
"""


async def test_a_killed_worker_s_calls_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    (tmp_path / "clerk.py").write_text(MODULE.format(made=str(made)))
    folder = Folder(tmp_path)
    with folder.running("worker", "clerk:Clerk") as worker:
        worker.wait_for_error_line("at work on")
        log = await open_log(f"sqlite:///{tmp_path}/.noesium/log.db")
        async with Client(log) as client:
            run = await client.start("clerk", {"messages": [{"role": "user", "content": "Pay.", "id": "q"}]})
            await until(run, lambda event: event.payload.get("output") == "800")
            worker.wait_for(lambda _: "refund" in made.read_text())
            killed(worker)

            monkeypatch.syspath_prepend(tmp_path)
            from clerk import Clerk  # noqa: PLC0415

            async with Worker(log, [Clerk], home=tmp_path / "home", clock=Later()):
                await until(run, lambda event: event.event_type == "effect.outcome.unknown")
                (effect,) = await run.unresolved_effects()
                assert effect.name == "refund"
                await run.resolve_effect(effect.effect_id, "result", "paid by hand", by="ada")
                result = await run.result(timeout=PATIENCE_S)
            texts = [message["content"] for message in result["messages"]]
            assert texts == ["Pay.", "", "700", "", "paid by hand", "800", "All done."]
            assert (await verify(run, agent_target(Clerk, log))).difference is None
            events = [event async for event in run.events(follow=False)]
        await log.close()
    sys.modules.pop("clerk")
    assert Counter(made.read_text().splitlines()) == {
        "model 1": 1,
        "look_up": 2,
        "model 3": 1,
        "refund": 1,
        "model 6": 1,
    }
    told = Counter(event.event_type for event in events if event.event_type.startswith("tool."))
    assert told == {"tool.invoked": 3, "tool.completed": 3}
