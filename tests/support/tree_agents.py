"""Agents whose runs call one another, down to workers that wait: trees of runs for tests.

A run's input says what it calls: `{"calls": [{"of": "leaf", "input": {…}}, …]}`. It calls them all at once
and ends as `ending` says: `all` (with all answers), `first` (with one, the others go on), `fails` (by an
error, once all calls are on the log), `cleans up` (it calls once more when it is told to end).
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import current_step
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.kernel.step.position import this_step

OBJECT = {"type": "object"}


class TreeState(TypedDict, total=False):
    calls: list[dict[str, Any]]
    ending: str
    undo: bool
    question: str
    hangs: bool
    answers: list[Any]


async def hang() -> None:
    """A call to the outside that never ends."""
    await asyncio.Event().wait()


async def done() -> str:
    return "done"


@kernel_compensation()
async def undo(result: str) -> None:
    """Nothing to undo: it only makes the run's end take two commits."""


class _Tree(BaseGraphicAgent):
    def get_state_class(self) -> type[Any]:
        return TreeState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(TreeState)
        graph.add_node("work", self.work)
        graph.add_edge(START, "work")
        graph.add_edge("work", END)
        return graph

    def result(self, state: dict[str, Any]) -> Any:
        return {"answers": state.get("answers", [])}

    async def work(self, state: TreeState) -> dict[str, Any]:
        """Act as the input says."""
        step, history = current_step(), this_step().journal.history
        if state.get("undo"):
            await step.effect("done", done, compensate=undo)
        if not state.get("calls"):
            return {"answers": [await self.rest(state)]}
        calls = [
            asyncio.ensure_future(step.invoke(f"{call['of']}.work", call.get("input", {})))
            for call in state["calls"]
        ]
        try:
            if state.get("ending") == "fails":
                while len(history.invoked) < len(calls):
                    await asyncio.sleep(0)
                raise ValueError("it fails by itself")
            if state.get("ending") == "first":
                first, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                return {"answers": [first.pop().result()]}
            return {"answers": list(await asyncio.gather(*calls))}
        except asyncio.CancelledError:
            if state.get("ending") == "cleans up":
                await step.invoke("leaf.work", {"question": "cleaned?"})
            raise
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def rest(self, state: TreeState) -> Any:
        """A run that calls nobody: it asks a person, or waits for the signal `go`."""
        if "question" in state:
            answer = await current_step().interrupt(state["question"])
            return {"approved": answer.approved, "by": answer.answered_by}
        if state.get("hangs"):
            return await current_step().effect("pay", hang)
        return await current_step().signal("go")


def _capability(agent_type: str) -> tuple[Capability, ...]:
    return (Capability(id=f"{agent_type}.work", input_schema=OBJECT, output_schema=OBJECT),)


class Root(_Tree):
    agent_type = "root"
    companions = ("tests.support.tree_agents:Middle", "tests.support.tree_agents:Leaf")


class Middle(_Tree):
    agent_type = "middle"
    capabilities = _capability("middle")


class Leaf(_Tree):
    agent_type = "leaf"
    capabilities = _capability("leaf")


AGENTS: tuple[type[BaseGraphicAgent], ...] = (Root, Middle, Leaf)


def calling(of: str, *inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The input of a run that calls `of` with each of these inputs; without any, once with none."""
    return {"calls": [{"of": of, "input": one} for one in inputs or ({},)], **more}
