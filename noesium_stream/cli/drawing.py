"""Drawing of a run's causal tree as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from rich.text import Text
from rich.tree import Tree

from noesium_stream.cli.eventline import SHORT_ID
from noesium_stream.cli.output import counts, duration, shorten
from noesium_stream.cli.tree import NarrowTree, styled, tree_lines
from noesium_stream.client.views.causal_tree import Call, Effect, RunTree, StepTree
from noesium_stream.client.views.tree_questions import AskedQuestion, GivenAnswer
from noesium_stream.event.rules.labels import label_of

_LABEL_WIDTH: Final = 100
_NAME_WIDTH: Final = 80
_MOST_WAITS: Final = 10
COLORS: Final = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "expired": "yellow",
    "refused": "red",
}
"""Styles of runs' statuses."""


_MOST_SEGMENTS = 10


def draw(run: RunTree) -> list[str]:
    """Draw the tree as lines."""
    lines = [_head(run)]
    if run.error or run.reason:
        lines.append(styled(f"   {run.error or run.reason}"))
    if run.where:
        lines.append(styled(f"   at {run.where}"))
    lines.extend(styled(f"   waits for {wait.shown}") for wait in run.waits_for)
    lines.extend(_waits_below(run))
    lines.extend(
        styled(f"   moved from version {move.source} to {move.target} before step {move.step}")
        for move in run.moves
    )
    lines.extend(_segments(run))
    tree = NarrowTree(Text("\n").join(lines), guide_style="")
    _add_steps(tree, run)
    return tree_lines(tree)


def _segments(run: RunTree) -> Iterable[Text]:
    """Where the last segments of the run begin."""
    begins = list(enumerate(run.segments, 2))
    if len(begins) > _MOST_SEGMENTS:
        yield styled(f"   {len(begins) - _MOST_SEGMENTS} segments before")
    for number, step in begins[-_MOST_SEGMENTS:]:
        yield styled(f"   segment {number} begins with step {step}")


def _waits_below(run: RunTree) -> Iterable[Text]:
    """What runs below this one wait for; they keep it waiting, too."""
    found = list(islice(run.waits_below, _MOST_WAITS + 1))
    for below, wait in found[:_MOST_WAITS]:
        yield styled(f"   {below.agent_type} {below.run_id[:SHORT_ID]} waits for {wait.shown}")
    if len(found) > _MOST_WAITS:
        yield styled("   and more: see below")


def _head(run: RunTree) -> Text:
    label = run.input.get("question") or run.input.get("query") or label_of(run.input)
    quoted = f'"{shorten(str(label), _LABEL_WIDTH)}"' if label else ""
    return _joined(
        styled(f"{run.agent_type} {run.agent_version}".strip(), "bold"),
        styled(run.run_id),
        styled(run.status, COLORS.get(run.status, "")),
        "" if run.duration_ms is None else duration(run.duration_ms),
        quoted,
        *_takeovers(run),
    )


def _joined(*parts: Text | str) -> Text:
    """Join the parts that are not empty by two spaces."""
    texts = (styled(part) if isinstance(part, str) else part for part in parts)
    return Text("  ").join(text for text in texts if text)


def _add_steps(tree: Tree, run: RunTree) -> None:
    width = max((len(step.node) for step in run.steps), default=0)
    for step in run.steps:
        _add_children(tree.add(_step_line(step, width)), step)
    for effect in run.effects:
        tree.add(_effect_line(effect))


def _add_children(branch: Tree, step: StepTree) -> None:
    children: Sequence[Call | Effect | AskedQuestion] = sorted(
        [*step.calls, *step.effects, *step.questions], key=_began
    )
    for child in children:
        if isinstance(child, Effect):
            branch.add(_effect_line(child))
            continue
        if isinstance(child, AskedQuestion):
            branch.add(_question_line(child))
            continue
        called = branch.add(Text("▸ ") + _call_line(child))
        if child.run is not None:
            _add_steps(called, child.run)


def _began(child: Call | Effect | AskedQuestion) -> int:
    if isinstance(child, AskedQuestion):
        return child.asked_ms
    return child.invoked_ms if isinstance(child, Call) else child.started_ms


def _step_line(step: StepTree, width: int) -> Text:
    parts: list[Text | str] = [step.node.ljust(width)]
    parts.append(f"{duration(step.duration_ms):>8}" if step.duration_ms is not None else f"{'…':>8}")
    if step.status == "failed":
        parts.append(styled(f"failed: {shorten(step.error or '', _LABEL_WIDTH)}", "red"))
        if step.where:
            parts.append(f"at {step.where}")
    elif step.status == "running":
        parts.append("open")
    if step.attempt > 1:
        parts.append(f"attempt {step.attempt}")
    if step.argument:
        parts.append(f"({shorten(step.argument, _LABEL_WIDTH)})")
    return _joined(*parts, counts(step.delta), ", ".join(step.events))


def _call_line(call: Call) -> Text:
    run = call.run
    who = f"{run.agent_type} {run.agent_version}" if run is not None else call.agent_type
    if call.duration_ms is not None:
        took = duration(call.duration_ms)
    else:
        took = "open" if run is not None else call.reason or "not taken up yet"
    failed = styled(f"failed: {shorten(call.error, _LABEL_WIDTH)}", "red") if call.error else ""
    takeovers = _takeovers(run) if run is not None else ()
    short_id = styled(call.call_id[:SHORT_ID], "dim")
    return _joined(call.capability_id, who, short_id, took, failed, counts(call.output), *takeovers)


def _effect_line(effect: Effect) -> Text:
    parts = [f"· {effect.name}"]
    if effect.duration_ms is not None:
        parts.append(duration(effect.duration_ms))
    if effect.status != "completed":
        parts.append(effect.status if effect.error is None else f"{effect.status}: {effect.error}")
    elif effect.error is not None:
        parts.append(effect.error)  # the decider
    return _joined(*parts)


def _question_line(question: AskedQuestion) -> Text:
    answers = [_answer_text(answer) for answer in question.answers]
    if question.status == "open":
        of = "" if question.minimum is None else f"{len(answers)} of {question.minimum}"
        answers.append(" ".join(part for part in (of, "open") if part))
    elif question.status == "expired":
        answers.append("expired")
    took = (
        ""
        if question.closed_ms is None
        else f"after {duration(max(0, question.closed_ms - question.asked_ms))}"
    )
    return _joined(f"? {question.question}", ", ".join(answers), took)


def _answer_text(answer: GivenAnswer) -> str:
    """Format an answer with what allowed it: `approved by ann (role:auditor, allow 2, key k1)`."""
    said = f"{'approved' if answer.approved else 'rejected'} by {shorten(answer.answered_by, _NAME_WIDTH)}"
    allowed = answer.allowed
    if allowed is None:
        return said
    why = [
        allowed.approver if allowed.approver != answer.answered_by else None,
        None if allowed.rule is None else f"rule {allowed.rule}",
        None if allowed.key is None else f"key {allowed.key}",
    ]
    shown = ", ".join(shorten(part, _NAME_WIDTH) for part in why if part)
    return f"{said} ({shown})" if shown else said


def _takeovers(run: RunTree) -> Iterable[str]:
    return [
        f"taken over from {takeover.previous} after {duration(takeover.after_ms)}"
        for takeover in run.takeovers
    ]
