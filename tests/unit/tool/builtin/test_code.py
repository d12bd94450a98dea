"""Code of a model calls the agent's tools: each call is judged, made once, and told of."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import ConfigError, ToolNotFoundError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import CodeToolkit, Mode, ToolkitRegistry, tool
from noesium_stream.tool.toolkit import TOOLKITS

made: Counter[str] = Counter()
CODE = """
total = 0
for number in [1, 2, 3]:
    total += price(number)["cents"]
print("sum", total)
receipt = pay(cents=total)
{"receipt": receipt, "total": total}
"""


class Order(TypedDict, total=False):
    code: str
    said: Any


@tool(side_effects=SideEffectClass.PURE)
def price(number: int) -> dict[str, int]:
    """The price of an article."""
    made[f"price {number}"] += 1
    return {"cents": 100 * number}


@tool(side_effects=SideEffectClass.EXTERNAL, permissions=("pay:order:{cents}",))
def pay(cents: int) -> str:
    """Pay."""
    made["pay"] += 1
    return f"paid {cents}"


@tool(name="strange.name-1", side_effects=SideEffectClass.IDEMPOTENT)
def strange(number: int = 1) -> int:
    """Fail."""
    raise ValueError(f"no {number}")


async def work(state: Order) -> dict[str, Any]:
    return {"said": await current_step().tool("code", code=state["code"])}


def agent(node: Any = work, *, permissions: tuple[str, ...] = ("pay",), **settings: Any) -> Any:
    graph = StateGraph(Order)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    kind = agent_from_graph(graph, "clerk")
    kind.tools, kind.mode = (CodeToolkit(**settings), price, pay, strange), Mode.AUTO
    kind.permissions = tuple(f"{one}:order" for one in permissions)
    return kind


@pytest.fixture(autouse=True)
def _fresh() -> None:
    made.clear()


def told(events: list[EventEnvelope]) -> list[str]:
    return [
        f"{event.payload['tool_name']} {event.event_type.partition('.')[2]}"
        for event in events
        if event.event_type.startswith("tool.")
    ]


async def run_of(code: str, kind: Any, *crash: Any) -> tuple[Any, list[EventEnvelope]]:
    """Run it, verify its recording, and return what the tool gave, with all events."""
    async with Rehearsal(kind) as rehearsal:
        if crash:
            rehearsal.crash_after(*crash)
        run = await rehearsal.start({"code": code})
        said = (await run.result())["said"]
        before = made.copy()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
        assert made == before
        return said, await run.history()


async def test_each_call_of_the_code_is_a_call_of_the_agent() -> None:
    said, events = await run_of(CODE, agent())
    assert said == {"value": {"receipt": "paid 600", "total": 600}, "printed": "sum 600\n"}
    each = ["price invoked", "price completed"] * 3
    assert told(events) == ["code invoked", *each, "pay invoked", "pay completed", "code completed"]
    assert set(made.values()) == {1}


EVENTS = [
    (event_type, nth)
    for event_type in ("tool.invoked", "tool.completed", "effect.requested", "effect.completed")
    for nth in range(1, 6 if event_type.startswith("tool") else 10)
]


@pytest.mark.parametrize(("event_type", "nth"), EVENTS)
async def test_after_a_crash_code_goes_on_with_the_answers_that_are_on_the_log(
    event_type: str, nth: int
) -> None:
    kind = agent()
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after(event_type, nth)
        run = await rehearsal.start({"code": CODE})
        while not any(event.event_type == "run.completed" for event in await run.history()):
            for unknown in await rehearsal.client.unresolved_effects():
                handle = await rehearsal.client.get_run(run.id)
                await handle.resolve_effect(unknown.effect_id, "result", result="paid by hand")
            await asyncio.sleep(0.01)
        said = (await run.result())["said"]
        events = await run.history()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
    assert verdict.difference is None
    assert said["value"]["receipt"] in ("paid 600", "paid by hand")
    assert made["pay"] + (said["value"]["receipt"] == "paid by hand") >= 1
    assert made["pay"] <= 1
    each = ["price invoked", "price completed"] * 3
    assert told(events) == ["code invoked", *each, "pay invoked", "pay completed", "code completed"]


async def test_a_call_that_is_refused_is_an_exception_of_the_code() -> None:
    code = "try:\n    pay(cents=5)\nexcept PermissionError as error:\n    said = str(error)\nsaid"
    said, events = await run_of(code, agent(permissions=()))
    assert "needs 'pay:order:5', and clerk is not granted" in said["value"]
    assert told(events) == ["code invoked", "pay denied", "code completed"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("strange_name_1(number=4)", "RuntimeError: no 4"),
        ("price('one')", "ValueError: price: "),
        ("price(1, 2)", "ValueError: price takes 1 arguments: number"),
        ("price(1, number=1)", "ValueError: price got the argument 'number' twice"),
        ("missing(1)", "NameError: code can call no tool 'missing'"),
        ("code(code='1')", "NameError: code can call no tool 'code'"),
        ("1 / 0", "ZeroDivisionError"),
        ("open('/etc/passwd')", "PermissionError"),
    ],
)
async def test_what_fails_in_code_is_its_result(code: str, error: str) -> None:
    said, _ = await run_of(f"print('begun')\n{code}", agent())
    assert said["error"].startswith(error)
    assert said["printed"] == "begun\n"


async def test_only_functions_that_are_named_are_there() -> None:
    kind = agent(functions=("price", "strange.name-1"))
    said, events = await run_of(
        "try:\n    pay(cents=1)\nexcept NameError:\n    pass\nprice(2)['cents']", kind
    )
    assert said["value"] == 200
    assert "pay invoked" not in told(events)
    assert (await run_of("strange_name_1()", kind))[0]["error"] == "RuntimeError: no 1"


async def test_a_person_is_asked_in_the_middle_of_code() -> None:
    kind = agent()
    kind.mode = Mode.ACT
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after("approval.requested", 1)
        run = await rehearsal.start({"code": CODE})
        asked = await run.wait_for("approval.requested")
        assert asked.payload["question"]["arguments"] == {"cents": 600}
        await run.answer(True)
        assert (await run.result())["said"]["value"]["receipt"] == "paid 600"
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
    assert verdict.difference is None
    assert made["pay"] == 1


async def test_code_may_read_in_a_mode_that_only_reads() -> None:
    kind = agent()
    kind.mode = Mode.ASK
    said, _ = await run_of("price(1)['cents']\npay(cents=1)", kind)
    assert said["error"].startswith("PermissionError: pay")


@pytest.mark.parametrize("nth", range(1, 12))
async def test_two_programs_at_once_get_their_own_answers(nth: int) -> None:
    async def both(state: Order) -> dict[str, Any]:
        step = current_step()
        codes = [f"a = price(1)\nb = price({n})\n[a['cents'], b['cents']]" for n in (2, 3)]
        found = await asyncio.gather(*(step.tool("code", code=code) for code in codes))
        return {"said": [one["value"] for one in found]}

    said, _ = await run_of("", agent(both), "effect.completed", nth)
    assert said == [[100, 200], [100, 300]]


async def test_calls_are_bounded() -> None:
    said, events = await run_of("while True:\n    price(1)", agent(max_calls=3))
    assert said["error"] == "The code makes over 3 calls."
    assert told(events).count("price invoked") == 3


def test_it_is_a_built_in_toolkit() -> None:
    assert TOOLKITS.get("code") is CodeToolkit
    assert "code" in ToolkitRegistry().names()
    with pytest.raises(ConfigError, match="max_calls"):
        CodeToolkit(max_calls=10_000)
    with pytest.raises(ToolNotFoundError):
        TOOLKITS.get("codes")


def test_without_its_extra_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['pydantic_monty'] = None\n"
        "from pathlib import Path; from noesium_stream.tool import CodeToolkit\n"
        "CodeToolkit().prepare(Path('.'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "noesium-stream[python-tool]" in done.stderr
