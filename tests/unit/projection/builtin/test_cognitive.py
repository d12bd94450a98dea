"""What `CognitiveProjection` makes of runs of every kind, and of memories that many runs wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noesium_stream.clock import VirtualClock
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import MemoryWritten
from noesium_stream.log import open_log
from noesium_stream.projection.builtin.cognitive import CognitiveProjection
from noesium_stream.projection.builtin.cognitive_state import MemoryItem, RunMind
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.testing.golden import read_history
from tests.support.many_runs import many_runs

HISTORIES = Path(__file__).parents[3] / "replay"


async def test_conversation_tools_plan_and_memory_of_runs_of_every_kind(tmp_path: Path) -> None:
    async with many_runs("memory://", tmp_path) as (log, _, runs):
        with ProjectionEngine(log, tmp_path / "state") as engine:
            engine.register("cognitive", CognitiveProjection())
            state: dict[str, Any] = await engine.get_state("cognitive")
    minds: dict[str, RunMind] = {name: state[run.id] for name, run in runs.items()}

    def said(name: str) -> list[tuple[Any, ...]]:
        return [(one.role, one.kind, one.content, one.by) for one in minds[name].messages]

    assert said("refused") == [
        ("user", "input", {"what": "question"}, "client"),
        ("assistant", "question", "May I?", "act"),
        ("user", "answer", {"approved": False, "value": "no"}, "bob"),
        ("assistant", "result", {"what": "question", "done": "False"}, None),
    ]
    assert said("signalled")[1] == ("user", "signal", {"name": "go", "value": 7}, "client")
    assert said("cancelled")[-1] == (
        "assistant",
        "error",
        {"error_type": "run.cancelled", "message": "enough"},
        None,
    )
    assert said("failure")[-1][2] == {"error_type": "ValueError", "message": "told to, failure"}
    assert said("undone")[-1][1] == "input"  # it has not ended

    def used(name: str) -> list[tuple[Any, ...]]:
        return [(use.kind, use.name, use.status, use.output) for use in minds[name].uses.values()]

    assert used("tools") == [("tool", "find", "completed", [1]), ("tool", "find", "failed", None)]
    assert used("tool of another") == [("capability", "tool.sums.add", "completed", 3)]
    assert used("delegated in vain")[1] == ("capability", "text.echo", "failed", None)
    assert used("nobody") == [("capability", "no.such", "unresolved", None)] * 3
    assert used("effect that works") == [("effect", "works", "completed", "X")]
    assert used("effect of unknown outcome") == [("effect", "hanging", "unknown", None)]
    echoed = [one for one in state.values() if isinstance(one, RunMind) and one.agent_type == "echo"]
    heard = {(one.messages[0].content["text"], one.messages[0].by, len(one.uses)) for one in echoed}
    assert heard == {("a", "asker", 0), ("b", "asker", 0), ("fail", "asker", 0)}
    assert {use.node for use in minds["tool of another"].uses.values()} == {"act"}
    assert [step.nodes for step in minds["moved"].plan] == [["begin"], ["act"], ["close"]]
    assert minds["moved"].moves == ["1.0.0 → 2.0.0"]
    memory = state["memory/doer/favourite"]
    assert (memory.value, memory.run_id, memory.writes) == ({"colour": "green"}, runs["tools"].id, 1)


def test_what_models_were_asked_and_said_is_the_reasoning_trace() -> None:
    clock = VirtualClock()
    run = read_history(HISTORIES / "shop.history.jsonl").events
    started, entered = run[1].event, next(i.event for i in run if i.event.event_type == "kernel.node.entered")
    shared = {"run_id": started.payload["run_id"], "effect_id": "e"}

    def event(event_type: str, **payload: Any) -> EventEnvelope:
        return entered.replace(
            event_id=clock.uuid7(),
            event_type=event_type,
            causation_id=entered.event_id,
            payload={**shared, **payload},
        )

    asked = {"args": ["Why?"], "kwargs": {}}
    trace = [
        event("effect.requested", name="model:openai:x", arguments=asked),
        event("effect.failed", error_type="Timeout", message="slow"),
        event("effect.requested", name="model:openai:x", arguments=asked, effect_id="f"),
        event("effect.completed", result={"text": "Because.", "tokens": 3}, effect_id="f"),
    ]
    mind = CognitiveProjection().fold([run[0].event, entered, *trace])
    assert isinstance(mind, RunMind)
    thoughts = [(one.model, one.node, one.prompt, one.answer, one.error) for one in mind.thoughts]
    assert thoughts == [
        ("openai:x", "take", "Why?", None, "Timeout: slow"),
        ("openai:x", "take", "Why?", "Because.", None),
    ]
    assert mind.uses == {}


def written(clock: VirtualClock, value: Any, partition_key: str, agent: str = "librarian") -> EventEnvelope:
    event = MemoryWritten(key="colour", value=value, value_type="str")
    trace = TraceContext("1" * 32, "2" * 16)
    return event.to_envelope(
        AgentRef(agent, agent), trace, partition_key=partition_key, clock=clock, correlation_id=None
    )


async def test_a_memory_that_lies_in_several_partitions_is_the_one_written_last(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = await open_log("memory://")
    events = []
    for number in range(20):
        clock.advance(1.0)
        events.append(written(clock, number, f"key {number}"))
    await log.append(events[::-1])  # the time of the events counts, not their places
    await log.append([written(clock, "other", "key 0", agent="other")])
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("cognitive", CognitiveProjection())
        await engine.catch_up("cognitive")
        found = engine.query("cognitive", "memory/librarian/colour")
        rows = dict(engine.scan("cognitive", "memory/"))
    assert isinstance(found, MemoryItem)
    assert (found.value, found.writes, found.agent_id) == (19, 20, "librarian")
    assert rows.keys() == {"memory/librarian/colour", "memory/other/colour"}
    await log.close()
