"""Steps of a skill, and which one comes next: pure functions of what the steps before have returned."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from keyword import kwlist
from typing import Any, Final, TypedDict

from noesium_stream.errors import ConfigError, ToolExecutionError
from noesium_stream.event.trust.condition import judged, names_in
from noesium_stream.tool.skill.template import check_template, filled

MAX_STEPS: Final = 100
MAX_REPEATS: Final = 100
MAX_ITEMS: Final = 1_000
"""Items of a list that a step goes through."""
INPUT: Final = "input"
ITEM: Final = "item"
END: Final = ""
"""What `SkillState` says is next when there is nothing left to do."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_STATE: Final = (INPUT, "outputs", "rounds", "next", "result")
_RESERVED: Final = frozenset({*_STATE, ITEM, *kwlist, "true", "false", "null", "len", "lower"})
"""Keys of the state, and words of conditions."""

ToolCaller = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Calls a tool by its name, with arguments."""


@dataclass(frozen=True, slots=True)
class SkillStep:
    """One step of a skill: a call of one tool, or of it for each item of a list.

    Attributes:
        name: by which later steps refer to what it returns: `$search.hits`.
        tool: the name of the tool.
        arguments: by name; texts in them may refer to the input, and to what steps have returned.
        when: a condition (as in a policy) over the input and the results: it is left out if that is false.
        for_each: a reference to a list: the tool is called for each item, one after the other, with `$item`
            in `arguments`; the step returns the list of results.
        repeat_until: a condition after the step: it is repeated until that is true, or it has been done
            `max_repeats` times.
        repeat_from: an earlier step, with which a repetition begins; by default the step itself.
        max_repeats: how often the step is done at most, 1 to 100.
    """

    name: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    when: str | None = None
    for_each: str | None = None
    repeat_until: str | None = None
    repeat_from: str | None = None
    max_repeats: int = 10


class SkillDelta(TypedDict):
    """What a step changes: its own output, the rounds of loops, and the name of the step that is next."""

    outputs: dict[str, Any]
    rounds: dict[str, int]
    next: str


class SkillState(SkillDelta):
    """The state of a skill under way."""

    input: dict[str, Any]


def check_steps(skill: str, steps: Sequence[SkillStep], output: Any) -> None:
    """Check steps, and the template of the skill's output.

    Raises:
        ConfigError: names the first thing that is wrong.
    """
    if len(steps) > MAX_STEPS:
        raise ConfigError(f"The skill {skill} has {len(steps)} steps; it may have {MAX_STEPS}.")
    names = [step.name for step in steps]
    known = frozenset({INPUT, *names})
    for at, step in enumerate(steps):
        where = f"The step {step.name[:100]} of the skill {skill}"
        if _NAME.fullmatch(step.name) is None or step.name in _RESERVED:
            raise ConfigError(
                f"{where} has a name that no reference can use.",
                hint="Use letters, digits and _, and no word that a condition has.",
            )
        if step.name in names[:at]:
            raise ConfigError(f"The skill {skill} has two steps {step.name}.", hint="Rename one of them.")
        _check_loop(where, step, names[: at + 1])
        _check_references(where, step, known)
    check_template(output, known, f"The output of the skill {skill}")


def _check_references(where: str, step: SkillStep, known: frozenset[str]) -> None:
    for condition in filter(None, (step.when, step.repeat_until)):
        for name in sorted(names_in(condition) - known):
            raise ConfigError(f"{where}: {condition[:200]!r} names {name}, which is not there.")
    check_template(step.for_each, known, where)
    check_template(dict(step.arguments), known | {ITEM} if step.for_each else known, where)


def _check_loop(where: str, step: SkillStep, before: Sequence[str]) -> None:
    if not 1 <= step.max_repeats <= MAX_REPEATS:
        raise ConfigError(f"{where} has max_repeats={step.max_repeats}; it can be 1 to {MAX_REPEATS}.")
    if step.repeat_from is not None and step.repeat_until is None:
        raise ConfigError(f"{where} has repeat_from, and no repeat_until.")
    if step.repeat_from is not None and step.repeat_from not in before:
        raise ConfigError(f"{where} repeats from {step.repeat_from[:100]!r}, which is no step before it.")
    if step.for_each is not None and not step.for_each.startswith("$"):
        raise ConfigError(f"{where}: for_each is no reference, such as $search.hits.")


def begin(skill: str, steps: Sequence[SkillStep], input: Mapping[str, Any]) -> SkillState:
    """The state before the first step.

    Raises:
        ToolExecutionError: a condition cannot be judged.
    """
    first = _from(skill, steps, 0, {INPUT: input})
    return {"input": dict(input), "outputs": {}, "rounds": {}, "next": first}


async def perform(
    skill: str, steps: Sequence[SkillStep], at: int, state: SkillState, call: ToolCaller
) -> SkillDelta:
    """Do one step, and say which one is next.

    Raises:
        ToolExecutionError: a reference names nothing, or a condition cannot be judged.
        Exception: the tool's own.
    """
    step = steps[at]
    where = f"The step {step.name} of the skill {skill}"
    scope = {INPUT: state["input"], **state["outputs"]}
    if step.for_each is None:
        output = await call(step.tool, filled(dict(step.arguments), scope, where))
    else:
        output = [
            await call(step.tool, filled(dict(step.arguments), {**scope, ITEM: item}, where))
            for item in _items(filled(step.for_each, scope, where), where)
        ]
    rounds = state["rounds"].get(step.name, 0) + 1
    return _after(skill, steps, at, {**scope, step.name: output}, rounds, output)


def _items(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ToolExecutionError(f"{where}: for_each is no list.")
    if len(value) > MAX_ITEMS:
        raise ToolExecutionError(f"{where}: for_each has {len(value):,} items; it may have {MAX_ITEMS:,}.")
    return value


def _after(
    skill: str, steps: Sequence[SkillStep], at: int, scope: Mapping[str, Any], rounds: int, output: Any
) -> SkillDelta:
    step = steps[at]
    counted = {step.name: rounds}
    if (
        step.repeat_until is not None
        and rounds < step.max_repeats
        and not _true(skill, step, step.repeat_until, scope)
    ):
        start = next(i for i, one in enumerate(steps) if one.name == (step.repeat_from or step.name))
        # Loops within the repeated part begin anew.
        counted = {**{one.name: 0 for one in steps[start:at]}, **counted}
        following = _from(skill, steps, start, scope)
    else:
        following = _from(skill, steps, at + 1, scope)
    return {"outputs": {step.name: output}, "rounds": counted, "next": following}


def _from(skill: str, steps: Sequence[SkillStep], start: int, scope: Mapping[str, Any]) -> str:
    """The name of the first step from `start` that is not left out."""
    for step in steps[start:]:
        if step.when is None or _true(skill, step, step.when, scope):
            return step.name
    return END


def _true(skill: str, step: SkillStep, condition: str, scope: Mapping[str, Any]) -> bool:
    held = judged(condition, scope)
    if held is None:
        raise ToolExecutionError(
            f"The step {step.name} of the skill {skill}: {condition[:200]!r} cannot be judged: a value is "
            "missing, or of another type than it is compared with."
        )
    return held
