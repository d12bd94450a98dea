"""The compensation plan of a run, read from its log: parts to undo, their compensations and arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

from langgraph.types import Command

from noesium_stream.clock import derived_id
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.run_history import UNDO, RunHistory
from noesium_stream.kernel.state.node_values import restore


class Undoing(NamedTuple):
    """One part of a run, and its compensation.

    Attributes:
        base: the base of its effect's ids; the task paths of its graph begin with it.
        what: the effect's id, the node's `step/task_path`, or the run's id.
        name: the effect's, the node's, or `the run`.
        reference: the reference of the function or the graph.
        state: the graph's first state.
        args: a function's arguments.
    """

    base: str
    what: str
    name: str
    reference: str
    effect_class: SideEffectClass
    state: dict[str, Any]
    args: list[Any]
    kwargs: dict[str, Any]

    @property
    def within(self) -> str:
        """The prefix of the task paths of its graph."""
        return f"{UNDO}{self.base}"


def undoings(history: RunHistory, run_id: str, input: dict[str, Any]) -> list[Undoing]:
    """All parts to undo, in this order; `run.compensation.started` is on the log."""
    found = [_of_done(history, run_id, done) for done in reversed(history.undoable)]
    reference = history.started.payload.get("on_failure") if history.started is not None else None
    why = history.compensation
    if reference is not None and why is not None:
        names = ("cause", "error_type", "message")
        state = {"input": input, **{name: why.payload[name] for name in names}}
        found.append(_undoing(run_id, run_id, "the run", reference, state=state, args=[state]))
    return found


def _of_done(history: RunHistory, run_id: str, done: EventEnvelope) -> Undoing:
    payload = done.payload
    if done.event_type == "kernel.node.completed":
        step, path, node = payload["step"], payload["task_path"], payload["node"]
        reference, delta = history.entered[step, path].payload["compensation"], _delta(payload.get("delta"))
        state = {"name": node, "result": delta, "args": [], "kwargs": {}}
        return _undoing(run_id, f"{step}/{path}", node, reference, state=state, args=[delta])
    requested = history.requested[payload["effect_id"]].payload
    name, arguments, result = requested["name"], requested.get("arguments") or {}, payload.get("result")
    args, kwargs = list(arguments.get("args", ())), arguments.get("kwargs", {})
    return _undoing(
        run_id,
        payload["effect_id"],
        name,
        requested["compensation"],
        SideEffectClass(requested["effect_class"]),
        state={"name": name, "result": result, "args": args, "kwargs": kwargs},
        args=[result, *args],
        kwargs=kwargs,
    )


def _undoing(
    run_id: str,
    what: str,
    name: str,
    reference: str,
    effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
    *,
    state: dict[str, Any],
    args: list[Any],
    kwargs: dict[str, Any] | None = None,
) -> Undoing:
    base = derived_id(run_id, "compensation", what)
    return Undoing(base, what, name, reference, effect_class, state, args, kwargs or {})


def _delta(recorded: Any) -> Any:
    """The node's delta in the form that its compensation receives: only the update of a `Command`."""
    value = restore(recorded)
    if isinstance(value, Command):
        return value.update
    if isinstance(value, list):
        return [item.update if isinstance(item, Command) else item for item in value]
    return value
