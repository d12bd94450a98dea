"""Compensation of a run that failed or was cancelled: the last part first (the saga pattern, RFC-0003 §11).

Every compensation is an effect with `compensates` set, under an id that is derived from the part that it
undoes. So a process that takes the run over finds which parts are undone already. Functions and graphs are
found by their names: nothing of the run's own graph is executed.

Order is the guarantee:
 1. a person decides about an effect that was under way when the run ended and has a compensation: only a call
    that was made is undone,
 2. completed parts are undone, in the reverse of the order of completion on the log, one at a time,
 3. the agent's compensation for all of its runs (`on_failure`) comes last,
 4. a compensation that fails, after its retries, waits for a person: no earlier part is undone before that.

Decision record: a graph that undoes is executed as a part of the run. Its nodes are steps of the run's
journal, whose task paths begin with `undo:ID`, the id of the compensation. So they are entered, call, fail
and complete as others do, and a crash in the middle repeats nothing that is done. The effect around the graph
records its start and its end. It counts as idempotent, because calling it again continues the walk: only the
effects in its nodes may not be repeated, according to their own classes. A retry after a failure keeps the
completed nodes, and the failed node gets another attempt. Compensations are not undone themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from langgraph.graph.state import CompiledStateGraph

from noesium_stream.config import ExecutionMode
from noesium_stream.errors import EffectFailedError, KernelError, StrictModeError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import Compensated, EffectOutcomeUnknown, SideEffectClass
from noesium_stream.kernel.callable_reference import Graph, Undo, check_callable, find, reference
from noesium_stream.kernel.compensation.plan import Undoing, undoings
from noesium_stream.kernel.decorators import compensation_meta
from noesium_stream.kernel.graph.durable_graph import DurableGraph
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.reach import Reach
from noesium_stream.kernel.run_history import RunHistory
from noesium_stream.kernel.step.effect import Effect, outcome_of
from noesium_stream.kernel.step.effects import invoke
from noesium_stream.kernel.strict.graph_check import require_strict

UNDER_WAY: Final = "the run ended while it was under way"
_MAX_SUPERSTEPS: Final = 1_000


def must_compensate(history: RunHistory) -> bool:
    """Whether the run did, or may have done, something that has to be undone when it ends without success."""
    declared = history.started is not None and history.started.payload.get("on_failure") is not None
    return declared or bool(history.undoable) or bool(_unsettled(history))


def left_under_way(history: RunHistory, run_id: str) -> Iterator[tuple[DomainEvent, str]]:
    """Events about effects that the run leaves without an outcome when it ends, each with its cause.

    The outcome is known if the process that made the call has reported it.

    Nobody waits for these effects, and nobody can decide about them any more; but the log shows that they may
    have been done. Idempotent ones are included: they would be safe to repeat, but are not repeated. Pure
    ones are not included: nothing outside can tell whether they were done.
    """
    for effect_id, report in history.reported.items():
        if effect_id in history.requested and not _settled(history, effect_id):
            yield outcome_of(report), report.event_id
    for effect_id in history.calls_under_way():
        requested = history.requested[effect_id]
        pure = requested.payload["effect_class"] == SideEffectClass.PURE.value
        if not pure and effect_id not in history.reported:
            unknown = EffectOutcomeUnknown(run_id=run_id, effect_id=effect_id, reason=UNDER_WAY)
            yield unknown, requested.event_id


def on_failure_of(undo: Undo, agent: object, reach: Reach, what: str, mode: ExecutionMode) -> str:
    """The reference of an agent's `on_failure`, which other processes can resolve; declares it in `reach`.

    Raises:
        KernelError: it cannot be found by its name, or does not accept its arguments.
        StrictModeError: a function, in STRICT mode, where effects are left to other agents.
        GraphError: a graph that cannot run in STRICT mode.
    """
    named = reference(undo, what)
    reach.declared.add(named)
    found = find(named, agent, (reach,))
    if isinstance(found, CompiledStateGraph):
        if mode is ExecutionMode.STRICT:
            require_strict(found)
    elif mode is ExecutionMode.STRICT:
        raise StrictModeError(
            f"on_failure of {what} is a function, whose effects STRICT mode does not allow.",
            hint="Name a graph whose nodes leave them to other agents: on_failure='module:GRAPH'.",
        )
    else:
        check_callable(found, what, {})
    return named


class Compensation:
    """Undoes one run; `run.compensation.started` is staged or on its log. It is the `Site` of the effects.

    Args:
        journal: the run's journal.
        agent: its methods may be compensations; its `execution_mode` and `max_supersteps` apply to their
            graphs.
        reaches: what the graphs of its versions can name.
        input: the run's input.
    """

    attempt = 1

    def __init__(
        self,
        journal: RunJournal,
        agent: object,
        reaches: Sequence[Reach],
        input: dict[str, Any] | None = None,
    ) -> None:
        started = journal.history.compensation
        if started is None:
            raise ValueError("a run is undone after run.compensation.started")
        self.journal = journal
        self.history = journal.history
        self.clock = journal.clock
        self.run_id = journal.identity.run_id
        self._agent = agent
        self._reaches = reaches
        self._input = input or {}
        self._started = started

    async def run(self) -> list[Compensated]:
        """Undo all parts; return the result for each, in this order.

        Raises:
            FencedError, CommitUnknownError, LogClosedError: the next owner of the run continues.
        """
        await self.journal.commit()
        await self._settle()
        return [await self._undo(part) for part in undoings(self.history, self.run_id, self._input)]

    async def _settle(self) -> None:
        history = self.history
        while unsettled := _unsettled(history):
            for effect_id in unsettled:
                outcome, report = history.outcomes.get(effect_id), history.reported.get(effect_id)
                if report is not None:
                    self.stage(outcome_of(report), report.event_id)
                elif outcome is None or outcome.event_id in history.resolved:
                    unknown = EffectOutcomeUnknown(run_id=self.run_id, effect_id=effect_id, reason=UNDER_WAY)
                    self.stage(unknown, history.requested[effect_id].event_id)
            await self.journal.until(
                lambda: not (left := _unsettled(history)) or any(each in history.reported for each in left)
            )

    async def _undo(self, part: Undoing) -> Compensated:
        effect = Effect(self, f"undo {part.name}", part.base, part.effect_class, compensates=part.what)
        with suppress(KernelError):  # if it is missing, a person decides, and it is looked up again then
            self._find(effect, part)

        async def call(effect_id: str) -> Any:
            found = self._find(effect, part)
            if isinstance(found, CompiledStateGraph):
                return await self._execute(found, part)
            return await invoke(found, part.args, part.kwargs, effect_id, self.journal.activity)

        try:
            await effect.outcome(call)
        except EffectFailedError:
            return Compensated(name=part.name, compensates=part.what, outcome="given_up")
        return Compensated(name=part.name, compensates=part.what, outcome="completed")

    def _find(self, effect: Effect, part: Undoing) -> Any:
        """The compensation's function or graph; configures the effect for its call."""
        found = find(part.reference, self._agent, self._reaches)
        meta = compensation_meta(found)
        effect.retries, effect.timeout = meta.retries, meta.timeout
        effect.graph = isinstance(found, CompiledStateGraph)
        effect.effect_class = SideEffectClass.IDEMPOTENT if effect.graph else part.effect_class
        return found

    async def _execute(self, graph: Graph, part: Undoing) -> None:
        mode = getattr(self._agent, "execution_mode", ExecutionMode.PRAGMATIC)
        limit = getattr(self._agent, "max_supersteps", _MAX_SUPERSTEPS)
        durable = DurableGraph(graph, mode=mode)
        await durable.execute_within(self.journal, part.state, part.within, {"recursion_limit": limit})

    def stage(self, event: DomainEvent, cause: str | None = None, key: str | None = None) -> EventEnvelope:
        """See `Site.stage`."""
        trace = self._started.trace.child(self.clock.token(8))
        cause = cause or self._started.event_id
        return self.journal.stage(event, trace=trace, causation_id=cause, idempotency_key=key)

    def since(self, begun: float) -> int:
        """See `Site.since`."""
        return max(0, round((self.clock.monotonic() - begun) * 1000))


def _unsettled(history: RunHistory) -> list[str]:
    """Effects with a compensation whose outcome is unknown."""
    return [
        effect_id
        for effect_id, requested in history.requested.items()
        if requested.payload.get("compensation") is not None and not _settled(history, effect_id)
    ]


def _settled(history: RunHistory, effect_id: str) -> bool:
    outcome = history.outcomes.get(effect_id)
    if outcome is None:
        return False
    if outcome.event_type != "effect.outcome.unknown":
        return True
    decision = history.resolved.get(outcome.event_id)
    return decision is not None and decision.payload["decision"] != "retry"
