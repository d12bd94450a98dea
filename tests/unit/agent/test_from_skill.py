"""An agent from a skill: a node for each step, tools that are called once, and a capability for others."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import BaseGraphicAgent, agent_from_graph, agent_from_skill
from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import ConfigError, RunFailedError, ToolNotFoundError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.standard import DeterminismClass, SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, tool
from noesium_stream.tool.skill import Skill, SkillRun, SkillStep, SkillToolkit, skill_of
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S
from tests.support.skill_folders import EXAMPLE

made: Counter[str] = Counter()


@tool(side_effects=SideEffectClass.PURE, determinism=DeterminismClass.DETERMINISTIC)
def find(topic: str) -> list[str]:
    """Find words."""
    made["find"] += 1
    return [f"{topic} {number}" for number in range(2)] if topic != "nothing" else []


@tool(side_effects=SideEffectClass.EXTERNAL, permissions=("own:write",))
async def write(words: list[str], advice: str | None = None) -> str:
    """Write a text."""
    made["write"] += 1
    return f"{' and '.join(words)}{f' ({advice})' if advice else ''}"


@tool(side_effects=SideEffectClass.PURE)
def judge(text: str) -> dict[str, Any]:
    """Judge a text."""
    made["judge"] += 1
    good = "longer" in text
    return {"good": good, "advice": None if good else "longer"}


TOOLS = (find, write, judge)
LONG = "rain 0 and rain 1 (longer)"
BRIEF = Skill(
    "brief",
    "Write about a topic.",
    {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]},
    {"type": "object", "properties": {"text": {"type": ["string", "null"]}}},
    steps=(
        SkillStep("search", "find", {"topic": "$input.topic"}),
        SkillStep(
            "draft", "write", {"words": "$search", "advice": "$review.advice?"}, when="len(search) > 0"
        ),
        SkillStep(
            "review",
            "judge",
            {"text": "$draft"},
            when="len(search) > 0",
            repeat_until="review.good",
            repeat_from="draft",
        ),
    ),
    output={"text": "$draft?"},
)


@skill_of("find", "write")
async def summary(run: SkillRun, topic: str, times: int = 1) -> str:
    """Sum up."""
    words = await run.tool("find", topic=topic)
    for _ in range(times):
        text = await run.tool("write", words=words)
    return text.upper()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    made.clear()


def agent_of(skill: Skill) -> type[BaseGraphicAgent]:
    return agent_from_skill(skill, TOOLS, permissions=("own:write",), mode=Mode.AUTO)


def told(events: list[EventEnvelope], event_type: str, field: str) -> list[Any]:
    return [event.payload[field] for event in events if event.event_type == event_type]


async def assert_replays(rehearsal: Rehearsal, run: Any, kind: Any) -> None:
    before = Counter(made)
    verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
    assert verdict.difference is None
    assert made == before


async def test_each_step_is_a_node_with_branches_and_loops() -> None:
    kind = agent_of(BRIEF)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"topic": "rain"})
        assert await run.result() == {"text": LONG}
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    assert made == {"find": 1, "write": 2, "judge": 2}
    nodes = ["search", "draft", "review", "draft", "review"]
    assert told(events, "kernel.node.entered", "node") == nodes
    assert told(events, "tool.invoked", "tool_name") == ["find", "write", "judge", "write", "judge"]


async def test_steps_that_are_left_out_make_no_call() -> None:
    async with Rehearsal(agent_of(BRIEF)) as rehearsal:
        run = await rehearsal.start({"topic": "nothing"})
        assert await run.result() == {"text": None}
    assert made == {"find": 1}


async def finished(rehearsal: Rehearsal, run: Any) -> Any:
    """The run's result. A `write` that was under way when the process died was made, as a person says."""
    result = asyncio.create_task(run.result())
    while not result.done():
        for unknown in await rehearsal.client.unresolved_effects():
            handle = await rehearsal.client.get_run(run.id)
            made["decided"] += 1
            await handle.resolve_effect(unknown.effect_id, "result", result=LONG)
        await asyncio.sleep(0.01)
    return await result


@pytest.mark.parametrize("crash", ["tool.completed", "kernel.node.completed"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_no_external_call_is_made_again_after_a_crash(crash: str, nth: int) -> None:
    kind = agent_of(BRIEF)
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after(crash, nth)
        run = await rehearsal.start({"topic": "rain"})
        assert await finished(rehearsal, run) == {"text": LONG}
        assert rehearsal.crashes == 1
        writes = told(await run.history(), "tool.invoked", "tool_name").count("write")
        await assert_replays(rehearsal, run, kind)
    assert made["write"] <= writes <= made["write"] + made["decided"] <= 2 + made["decided"]


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_function_is_one_node_that_repeats_no_call(nth: int) -> None:
    kind = agent_of(summary)
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after("tool.completed", nth)
        run = await rehearsal.start({"topic": "rain", "times": 2})
        assert await finished(rehearsal, run) in ("RAIN 0 AND RAIN 1", LONG.upper())
        await assert_replays(rehearsal, run, kind)
        events = await run.history()
    assert told(events, "tool.invoked", "tool_name") == ["find", "write", "write"]
    assert made["write"] <= 2


class Topic(TypedDict, total=False):
    topic: str
    text: Any


def caller_of(node: Any, agent_type: str) -> Any:
    graph = StateGraph(Topic)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    kind: Any = agent_from_graph(graph, agent_type)
    return kind


async def test_any_agent_calls_it_as_a_capability(tmp_path: Path) -> None:
    async def call(state: Topic) -> dict[str, Any]:
        return {"text": await current_step().invoke("skill.brief", {"topic": state["topic"]}, version="^1")}

    log = await open_log("memory://")
    async with (
        Worker(log, [agent_of(BRIEF), caller_of(call, "caller")], home=tmp_path),
        Client(log) as client,
    ):
        assert (await (await client.start("caller", {"topic": "rain"})).result(PATIENCE_S))["text"] == {
            "text": LONG
        }
        with pytest.raises(RunFailedError, match="topic"):
            await (await client.start("caller", {"topic": 1})).result(PATIENCE_S)
    await log.close()


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_a_skill_is_executed_inside_a_node_and_repeats_no_call(nth: int) -> None:
    async def inline(state: Topic) -> dict[str, Any]:
        return {"text": await BRIEF.execute(topic=state["topic"])}

    kind = caller_of(inline, "clerk")
    kind.tools, kind.mode, kind.permissions = TOOLS, Mode.AUTO, ("own:write",)
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after("tool.completed", nth)
        run = await rehearsal.start({"topic": "rain"})
        assert (await finished(rehearsal, run))["text"] == {"text": LONG}
        await assert_replays(rehearsal, run, kind)
        writes = told(await run.history(), "tool.invoked", "tool_name").count("write")
    assert made["write"] <= writes <= made["write"] + made["decided"]


async def test_a_skill_may_no_more_than_its_agent() -> None:
    async with Rehearsal(agent_from_skill(BRIEF, TOOLS, mode=Mode.AUTO)) as rehearsal:
        run = await rehearsal.start({"topic": "rain"})
        with pytest.raises(RunFailedError, match="write needs 'own:write'"):
            await run.result()
    assert made == {"find": 1}


def test_its_capability_has_the_schemas_and_the_least_safe_class_of_its_tools() -> None:
    (offered,) = agent_of(BRIEF).capabilities
    assert (offered.id, offered.version, offered.description) == (
        "skill.brief",
        "1.0.0",
        "Write about a topic.",
    )
    assert offered.input_schema == BRIEF.input_schema
    assert offered.side_effects is SideEffectClass.EXTERNAL
    assert offered.determinism_class is DeterminismClass.NONDETERMINISTIC
    assert offered.tags == ["category:skill", "tool:find", "tool:write", "tool:judge"]
    words = Skill("words", "", BRIEF.input_schema, steps=BRIEF.steps[:1])
    (offered,) = agent_from_skill(words, TOOLS).capabilities
    assert offered.side_effects is SideEffectClass.PURE
    assert offered.determinism_class is DeterminismClass.DETERMINISTIC


def test_wrong_inputs_and_missing_tools_are_refused() -> None:
    kind = agent_of(BRIEF)
    with pytest.raises(ConfigError, match="brief: input"):
        kind.check_input({"topic": 1})
    with pytest.raises(ToolNotFoundError, match="needs the tools judge"):
        agent_from_skill(BRIEF, [find, write])
    with pytest.raises(ConfigError, match="not an agent type"):
        agent_from_skill(BRIEF, TOOLS, agent_type="No Type")
    assert (
        agent_from_skill(Skill("My.Skill", "", {}, steps=(SkillStep("a", "find"),)), TOOLS).agent_type
        == "my-skill"
    )


async def test_its_tools_of_skill_folders_are_tools_like_others() -> None:
    read = Skill(
        "reading",
        "Read the format of a skill.",
        {"type": "object"},
        steps=(
            SkillStep("load", "load_skill", {"name": "monthly-report"}),
            SkillStep("read", "read_skill_file", {"name": "$load.name", "path": "$load.files[1]"}),
        ),
        output="$read.text",
    )
    async with Rehearsal(agent_from_skill(read, [SkillToolkit(EXAMPLE)])) as rehearsal:
        run = await rehearsal.start({})
        assert (await run.result()).startswith("# Orders")
        events = await run.history()
    assert told(events, "tool.completed", "labels") == [["skill:monthly-report"]] * 2
