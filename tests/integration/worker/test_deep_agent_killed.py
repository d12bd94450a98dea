"""A real worker is killed while a command of a Deep Agent runs: it is dead, and nothing is done twice."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.command import Folder
from tests.support.killed import Later, killed, until
from tests.support.mcp import until as until_so
from tests.support.reading import PATIENCE_S
from tests.support.sandboxes import alive, sandbox_named

MODULE = """
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage

from noesium_stream import BaseGraphicAgent, journaled_model
from noesium_stream.tool import Mode
from noesium_stream.tool.sandbox.deepagents import WorkspaceSandbox
from tests.support.scripted_chat import ScriptedChat, calling

COMMAND = "cat plan.txt >> done.txt; sh -c 'sleep 100000; : {mark}'"


class Deep(BaseGraphicAgent):
    agent_type = "deep"
    mode = Mode.AUTO

    def get_state_class(self):
        return dict

    def _build_graph(self):
        lines = [
            calling(("a", "write_file", {{"file_path": "/workspace/plan.txt", "content": "one line\\n"}})),
            calling(("b", "execute", {{"command": COMMAND}})),
            calling(("c", "execute", {{"command": "wc -l < done.txt"}})),
            AIMessage("All done."),
        ]
        model = journaled_model(ScriptedChat(lines=lines))
        return create_deep_agent(model, backend=WorkspaceSandbox({work!r}))
"""


async def test_a_killed_worker_s_commands_are_dead_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox_named("bubblewrap")
    work, mark = tmp_path / "work", uuid4().hex
    work.mkdir()
    (tmp_path / "deep.py").write_text(MODULE.format(work=str(work), mark=mark))
    folder = Folder(tmp_path)
    with folder.running("worker", "deep:Deep") as worker:
        worker.wait_for_error_line("at work on")
        log = await open_log(f"sqlite:///{tmp_path}/.noesium/log.db")
        async with Client(log) as client:
            run = await client.start("deep", {"messages": [{"role": "user", "content": "Do it."}]})
            worker.wait_for(lambda _: (work / "done.txt").exists() and alive(mark))
            killed(worker)
            await until_so(lambda: not alive(mark))

            monkeypatch.syspath_prepend(tmp_path)
            from deep import Deep  # noqa: PLC0415

            async with Worker(log, [Deep], home=tmp_path / "home", clock=Later()):
                await until(run, lambda event: event.event_type == "effect.outcome.unknown")
                (effect,) = await run.unresolved_effects()
                assert effect.name == "execute"
                await run.resolve_effect(effect.effect_id, "result", "it was enough", by="ada")
                result = await run.result(timeout=PATIENCE_S)
            texts = [message["content"].partition("\n")[0] for message in result["messages"]]
            assert [texts[place] for place in (0, 4, 6, 7)] == ["Do it.", "it was enough", "1", "All done."]
            assert (await verify(run, agent_target(Deep, log))).difference is None
            events = [event async for event in run.events(follow=False)]
        await log.close()
    sys.modules.pop("deep")
    assert (work / "done.txt").read_text() == "one line\n"
    told = Counter(event.event_type for event in events if event.event_type.startswith(("tool.", "model.")))
    assert told == {
        "tool.invoked": 3,
        "tool.completed": 3,
        "model.invoked": 4,
        "model.completed": 4,
    }
