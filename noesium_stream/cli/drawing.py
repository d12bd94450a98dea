"""A run's causal tree as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from noesium_stream.cli.eventline import SHORT_ID
from noesium_stream.cli.output import bold, dim, duration, shorten
from noesium_stream.client.tree import Call, Effect, RunTree, StepTree
from noesium_stream.event.calls import label_of

_LABEL_WIDTH: Final = 100


def draw(run: RunTree) -> Iterator[str]:
    """The tree as lines."""
    label = run.input.get("question") or run.input.get("query") or label_of(run.input)
    quoted = f'"{shorten(str(label), _LABEL_WIDTH)}"' if label else ""
    who = f"{run.agent_type} {run.agent_version}".strip()
    head = (
        bold(who) if who else "",
        run.run_id,
        _status(run),
        _took(run),
        quoted,
    )
    yield "  ".join(part for part in (*head, *_takeovers(run)) if part)
    if run.error or run.reason:
        yield f"   {run.error or run.reason}"
    if run.where:
        yield f"   at {run.where}"
    for move in run.moves:
        yield f"   moved from version {move.source} to {move.target} before step {move.step}"
    yield from _steps(run, "")


def _steps(run: RunTree, indent: str) -> Iterator[str]:
    width = max((len(step.node) for step in run.steps), default=0)
    for number, step in enumerate(run.steps):
        last = number == len(run.steps) - 1
        yield f"{indent}{'└─' if last else '├─'} {_step_line(step, width)}"
        yield from _children(step, indent + ("   " if last else "│  "))


def _children(step: StepTree, indent: str) -> Iterator[str]:
    children: Sequence[Call | Effect] = sorted([*step.calls, *step.effects], key=_began)
    for number, child in enumerate(children):
        last = number == len(children) - 1
        branch = f"{indent}{'└─' if last else '├─'}"
        if isinstance(child, Effect):
            yield f"{branch} {_effect_line(child)}"
            continue
        yield f"{branch} ▸ {_call_line(child)}"
        if child.run is not None:
            yield from _steps(child.run, indent + ("   " if last else "│  ") + "  ")


def _began(child: Call | Effect) -> int:
    return child.invoked_ms if isinstance(child, Call) else child.started_ms


def _step_line(step: StepTree, width: int) -> str:
    parts = [step.node.ljust(width)]
    parts.append(f"{duration(step.duration_ms):>8}" if step.duration_ms is not None else f"{'…':>8}")
    if step.status == "failed":
        parts.append(click.style(f"failed: {shorten(step.error or '', _LABEL_WIDTH)}", fg="red"))
        if step.where:
            parts.append(f"at {step.where}")
    elif step.status == "running":
        parts.append("open")
    if step.attempt > 1:
        parts.append(f"attempt {step.attempt}")
    parts.extend(part for part in (counts(step.delta), ", ".join(step.events)) if part)
    return "  ".join(parts)


def _call_line(call: Call) -> str:
    run = call.run
    who = f"{run.agent_type} {run.agent_version}" if run is not None else call.agent_type
    parts = [call.capability_id, who, dim(call.call_id[:SHORT_ID])]
    if call.duration_ms is not None:
        parts.append(duration(call.duration_ms))
    else:
        parts.append("not taken up yet" if run is None else "open")
    if call.error:
        parts.append(click.style(f"failed: {shorten(call.error, _LABEL_WIDTH)}", fg="red"))
    parts.append(counts(call.output))
    parts.extend(_takeovers(run) if run is not None else ())
    return "  ".join(part for part in parts if part)


def _effect_line(effect: Effect) -> str:
    parts = [f"· {effect.name}"]
    if effect.duration_ms is not None:
        parts.append(duration(effect.duration_ms))
    if effect.status != "completed":
        parts.append(effect.status if effect.error is None else f"{effect.status}: {effect.error}")
    elif effect.error is not None:
        parts.append(effect.error)  # who said so
    return "  ".join(parts)


def _status(run: RunTree) -> str:
    color = {"completed": "green", "failed": "red", "cancelled": "yellow", "expired": "yellow"}.get(
        run.status
    )
    return click.style(run.status, fg=color)


def _took(run: RunTree) -> str:
    return "" if run.duration_ms is None else duration(run.duration_ms)


def _takeovers(run: RunTree) -> list[str]:
    return [
        f"taken over from {takeover.previous} after {duration(takeover.after_ms)}"
        for takeover in run.takeovers
    ]


def counts(delta: Any) -> str:
    """`3 queries, 12 passages`: how much of what a step or a call gave."""
    if not isinstance(delta, dict):
        return ""
    return ", ".join(
        f"{len(value)} {_singular(name) if len(value) == 1 else name}"
        for name, value in delta.items()
        if isinstance(value, list)
    )


def _singular(name: str) -> str:
    if name.endswith("ies"):
        return f"{name[:-3]}y"
    return name.removesuffix("s")
