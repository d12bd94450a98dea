"""Steps of a skill: which one comes next, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import ConfigError, ToolExecutionError
from noesium_stream.tool.skill.skill import merged
from noesium_stream.tool.skill.step import END, SkillStep, begin, check_steps, perform


async def done(steps: tuple[SkillStep, ...], answers: dict[str, list[Any]], **input: Any) -> list[Any]:
    """The calls that steps make, each a tool and its arguments; `answers` of each tool in order."""
    calls: list[Any] = []

    async def call(tool: str, arguments: dict[str, Any]) -> Any:
        calls.append((tool, arguments))
        return answers[tool].pop(0)

    check_steps("s", steps, None)
    names = [step.name for step in steps]
    state = begin("s", steps, input)
    while state["next"] != END:
        state = merged(state, await perform("s", steps, names.index(state["next"]), state, call))
    return calls


async def test_a_step_gets_what_the_steps_before_have_returned() -> None:
    steps = (
        SkillStep("search", "find", {"query": "$input.topic"}),
        SkillStep("sum", "shorten", {"texts": "$search.texts", "about": "On ${input.topic}"}),
    )
    assert await done(steps, {"find": [{"texts": ["a"]}], "shorten": ["b"]}, topic="rain") == [
        ("find", {"query": "rain"}),
        ("shorten", {"texts": ["a"], "about": "On rain"}),
    ]


@pytest.mark.parametrize(("hits", "tools"), [([], ["find", "guess"]), (["x"], ["find", "read"])])
async def test_conditions_are_branches(hits: list[str], tools: list[str]) -> None:
    steps = (
        SkillStep("search", "find"),
        SkillStep("some", "read", when="len(search.hits) > 0"),
        SkillStep("none", "guess", when="len(search.hits) == 0"),
    )
    calls = await done(steps, {"find": [{"hits": hits}], "read": [1], "guess": [1]})
    assert [tool for tool, _ in calls] == tools


async def test_the_first_step_may_be_left_out_and_all_of_them_too() -> None:
    steps = (SkillStep("a", "x", when="input.n > 1"), SkillStep("b", "y", when="input.n > 0"))
    assert [tool for tool, _ in await done(steps, {"y": [1]}, n=1)] == ["y"]
    assert await done(steps, {}, n=0) == []


async def test_a_step_is_repeated_until_its_condition_holds() -> None:
    steps = (SkillStep("poll", "status", repeat_until='poll.state == "done"'), SkillStep("end", "fetch"))
    answers = {"status": [{"state": "open"}, {"state": "open"}, {"state": "done"}], "fetch": [1]}
    assert [tool for tool, _ in await done(steps, answers)] == ["status"] * 3 + ["fetch"]


async def test_repetitions_have_an_end() -> None:
    steps = (SkillStep("poll", "status", repeat_until="poll", max_repeats=4),)
    assert len(await done(steps, {"status": [False] * 9})) == 4


async def test_a_loop_over_several_steps_sees_the_round_before() -> None:
    steps = (
        SkillStep("draft", "write", {"advice": "$review.advice?"}),
        SkillStep("review", "judge", {"text": "$draft"}, repeat_until="review.good", repeat_from="draft"),
    )
    answers = {"write": ["one", "two"], "judge": [{"good": False, "advice": "longer"}, {"good": True}]}
    assert await done(steps, answers) == [
        ("write", {"advice": None}),
        ("judge", {"text": "one"}),
        ("write", {"advice": "longer"}),
        ("judge", {"text": "two"}),
    ]


async def test_a_loop_within_a_loop_begins_anew() -> None:
    steps = (
        SkillStep("inner", "i", repeat_until="inner", max_repeats=2),
        SkillStep("outer", "o", repeat_until="outer", repeat_from="inner", max_repeats=3),
    )
    calls = await done(steps, {"i": [False] * 9, "o": [False] * 9})
    assert "".join(tool for tool, _ in calls) == "iio" * 3


async def test_a_step_goes_through_a_list() -> None:
    steps = (SkillStep("read", "get", {"url": "$item.url", "by": "$input.by"}, for_each="$input.pages"),)
    pages = [{"url": "a"}, {"url": "b"}]
    assert await done(steps, {"get": ["1", "2"]}, pages=pages, by="me") == [
        ("get", {"url": "a", "by": "me"}),
        ("get", {"url": "b", "by": "me"}),
    ]
    assert await done(steps, {}, pages=[], by="me") == []


@pytest.mark.parametrize(
    ("step", "input", "said"),
    [
        (SkillStep("a", "x", when="input.n > 1"), {"n": "two"}, "'input.n > 1' cannot be judged"),
        (SkillStep("a", "x", when="input.n > 1"), {}, "cannot be judged"),
        (SkillStep("a", "x", {"y": "$input.z"}), {}, r"there is no \$input\.z here"),
        (SkillStep("a", "x", for_each="$input.l"), {"l": 1}, "for_each is no list"),
        (SkillStep("a", "x", for_each="$input.l"), {"l": [0] * 1001}, "has 1,001 items; it may have 1,000"),
    ],
)
async def test_what_cannot_be_judged_ends_the_skill(step: SkillStep, input: Any, said: str) -> None:
    with pytest.raises(ToolExecutionError, match=f"^The step a of the skill s: ?.*{said}"):
        await done((step,), {"x": [1]}, **input)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((SkillStep("a b", "x"),), "a name that no reference can use"),
        ((SkillStep("input", "x"),), "a name that no reference can use"),
        ((SkillStep("class", "x"),), "a name that no reference can use"),
        ((SkillStep("outputs", "x"),), "a name that no reference can use"),
        ((SkillStep("a", "x"), SkillStep("a", "y")), "two steps a"),
        ((SkillStep("a", "x", max_repeats=0, repeat_until="a"),), "max_repeats=0"),
        ((SkillStep("a", "x", max_repeats=101, repeat_until="a"),), "max_repeats=101"),
        ((SkillStep("a", "x", repeat_from="a"),), "no repeat_until"),
        ((SkillStep("a", "x", repeat_until="a", repeat_from="b"), SkillStep("b", "x")), "no step before it"),
        ((SkillStep("a", "x", for_each="input.l"),), "for_each is no reference"),
        ((SkillStep("a", "x", when="b.c > 1"),), "names b, which is not there"),
        ((SkillStep("a", "x", when="__import__('os')"),), "no condition"),
        ((SkillStep("a", "x", {"y": "$item"}),), "refers to item"),
        ((SkillStep("a", "x", {"y": "$b.c"}),), "refers to b"),
        (tuple(SkillStep(f"s{n}", "x") for n in range(101)), "101 steps; it may have 100"),
    ],
)
def test_wrong_steps_are_refused_before_anything_runs(steps: tuple[SkillStep, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_steps("s", steps, None)
