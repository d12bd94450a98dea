"""Comparing, verifying and looking into runs through the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from noesium_stream.client.operate.diff import diff
from noesium_stream.client.operate.fork import fork, parse_setting, set_path
from noesium_stream.client.operate.replay import recording, verify, verify_open
from noesium_stream.client.operate.replay_target import load_target
from noesium_stream.errors import AgentLoadError, ConfigError
from noesium_stream.event.standard import GraphRef
from noesium_stream.kernel import current_step, graph_ref
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log import open_log
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S, eventually
from tests.unit.kernel.verify.test_verifier_shapes import chain

REF = GraphRef(graph_id="sample", version="1.0.0", fingerprint="0")


async def work(state: dict[str, Any]) -> dict[str, Any]:
    return {"value": await current_step().effect("double", lambda n: n * 2, state["n"])}


async def wait(state: dict[str, Any]) -> dict[str, Any]:
    await current_step().effect("note", lambda: None)
    return {"items": [await current_step().signal("go")]}


async def ask(state: dict[str, Any]) -> dict[str, Any]:
    await current_step().effect("remind", lambda: None)
    return {}


GRAPH = chain(first=lambda state: {"items": ["a"]}, work=work)
WAITING = chain(work=work, wait=wait)


def target(graph: Any = GRAPH, agent_type: str | None = "sample") -> ReplayTarget:
    compiled = graph.compile()
    return ReplayTarget(compiled, graph_ref(compiled, "sample", "1.0.0"), agent_type=agent_type)


async def test_two_runs_are_compared_step_by_step(tmp_path: Path) -> None:
    async with running(GRAPH, tmp_path) as client:
        runs = [await client.start("sample", {"n": n, "items": []}) for n in (1, 1)]
        for run in runs:
            await run.result(timeout=PATIENCE_S)
        first, again = [await recording(run) for run in runs]
        found = diff(first, again)
        assert (found.difference, found.same_steps) == (None, 2)
        assert (await verify(runs[0], target())).is_same
    async with running(chain(first=lambda state: {"items": ["a"]}, work=wait), tmp_path) as client:
        run = await client.start("sample", {"n": 1, "items": []})
        await run.signal("go", 1)
        await run.result(timeout=PATIENCE_S)
        found = diff(first, await recording(run))
        assert found.same_steps == 1
        assert found.difference is not None
        assert (found.difference.step, found.difference.node) == (2, "work")


async def test_open_runs_are_verified_and_finished_ones_are_not(tmp_path: Path) -> None:
    async with running(WAITING, tmp_path) as client:
        done = await client.start("sample", {"n": 1, "items": []})
        await done.signal("go")
        await done.result(timeout=PATIENCE_S)
        run = await client.start("sample", {"n": 2, "items": []})

        async def waits() -> bool:
            types = [event.event_type async for event in run.events(follow=False)]
            return types.count("effect.completed") == 2

        await eventually(waits)
        verdicts = await verify_open(client, target(WAITING))
        assert [(verdict.run_id, verdict.is_same) for verdict in verdicts] == [(run.id, True)]
        assert [verdict.is_same for verdict in await verify_open(client, target(GRAPH))] == [False]
        assert len(await verify_open(client, target(WAITING, None))) == 1, "the graph is called sample"
        longer = chain(work=work, wait=wait, after=lambda state: {})
        (verdict,) = await verify_open(client, target(longer))
        assert verdict.difference is not None
        assert verdict.difference.what.startswith("it is pinned to another graph")
        changed = chain(work=work, wait=ask)
        (verdict,) = await verify_open(client, target(changed))
        assert verdict.difference is not None
        assert (verdict.difference.recorded, verdict.difference.now) == ("note()", "remind()")
        with pytest.raises(ConfigError, match="no agent of type other on memory"):
            await verify_open(client, target(WAITING), "other")


async def test_a_run_of_another_agent_is_refused(tmp_path: Path) -> None:
    async with running(GRAPH, tmp_path) as client:
        run = await client.start("sample", {"n": 1, "items": []})
        await run.result(timeout=PATIENCE_S)
        with pytest.raises(ConfigError, match="is one of sample, and the code is other"):
            await verify(run, target(agent_type="other"))


@pytest.mark.parametrize(
    ("path", "value", "changed"),
    [
        ("n", 2, {"n": 2, "items": [{"text": "a"}]}),
        ("items[0].text", "b", {"n": 1, "items": [{"text": "b"}]}),
        ("items", [], {"n": 1, "items": []}),
    ],
)
def test_a_path_in_the_state_is_set(path: str, value: Any, changed: dict[str, Any]) -> None:
    state: dict[str, Any] = {"n": 1, "items": [{"text": "a"}]}
    assert set_path(state, path, value) == path.partition("[")[0]
    assert state == changed


@pytest.mark.parametrize("path", ["m", "items[1]", "items.text", "n.x", "items[0].none", ""])
def test_a_path_that_is_not_there_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="at this step"):
        set_path({"n": 1, "items": [{"text": "a"}]}, path, 0)


def test_settings_are_json_or_text() -> None:
    assert parse_setting("a.b=[1, 2]") == ("a.b", [1, 2])
    assert parse_setting("a=good day") == ("a", "good day")
    assert parse_setting("a=x=y") == ("a", "x=y")
    with pytest.raises(ConfigError, match="no PATH=VALUE"):
        parse_setting("=3")


def compiled() -> Any:
    return GRAPH.compile()


@pytest.mark.parametrize("name", ["GRAPH", "compiled"])
async def test_a_graph_or_a_function_that_makes_one_can_be_replayed_against(name: str) -> None:
    log = await open_log("memory://")
    try:
        found = load_target(f"{__name__}:{name}", log)
        assert sorted(found.graph.nodes) == ["__start__", "first", "work"]
        with pytest.raises(AgentLoadError, match="no agent and no graph"):
            load_target(f"{__name__}:REF", log)
    finally:
        await log.close()


class Typed(TypedDict, total=False):
    n: int
    label: str


class Model(BaseModel):
    n: int
    label: str | None = None


@pytest.mark.parametrize("state", [Typed, Model])
async def test_a_declared_key_without_a_value_is_set_and_its_type_is_checked(
    tmp_path: Path, state: Any
) -> None:
    def copy(state: Any) -> dict[str, Any]:
        label = state.get("label") if isinstance(state, dict) else state.label
        return {"n": 7 if label == "late" else 1}

    graph = StateGraph(state).add_node("first", lambda _: {"n": 2}).add_node("copy", copy)
    graph.add_edge(START, "first").add_edge("first", "copy")
    async with running(graph, tmp_path) as client:
        parent = await client.start("sample", {"n": 0})
        assert (await parent.result(timeout=PATIENCE_S))["n"] == 1
        made = await fork(client, parent, 1, {"label": "late"}, target(graph))
        assert (await made.result(timeout=PATIENCE_S))["n"] == 7
        with pytest.raises(ConfigError, match="n does not take that value") as told:
            await fork(client, parent, 1, {"n": "many"}, target(graph))
        assert state.__name__ in str(told.value.hint)
        with pytest.raises(ConfigError, match="'labl'") as told:
            await fork(client, parent, 1, {"labl": "late"}, target(graph))
        assert "label" in str(told.value.hint)
