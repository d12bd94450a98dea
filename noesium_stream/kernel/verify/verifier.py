"""Replays a recorded run against code, without side effects, and finds the first difference.

The graph runs again under the kernel, over a `VerifyJournal`. Every body runs; every effect, answer, signal
and timer comes from the recording. Every entered node, call, event, delta and the result are compared with
it. The recording decides what counts: with the code that made it, a run verifies itself; with new code, the
difference is what a deploy would change.

- An open run is compared up to the end of its recording; that it goes no further is not a difference.
- A cancelled run ends where it was cancelled.
- A failed attempt is a recorded fact (see `recording`); a node's last failure is repeated.
- Graphs that undid parts of a failed or cancelled run are replayed as well, if they are found; functions that
  undid are effects, and are not called.
- An effect or a call that is not recorded is never made. External actions of a body without an effect do
  happen again: bodies run.

The state after a superstep is compared if the recording has a hash of it. Without one, a changed reducer
shows in the first node whose delta, calls or next step depend on it, or in the result.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.config import ExecutionMode
from noesium_stream.errors import (
    CapabilityOutputError,
    EventValidationError,
    RecordTooLargeError,
    brief,
    failure_of,
)
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.standard import GraphRef
from noesium_stream.kernel.graph.durable_graph import DurableGraph
from noesium_stream.kernel.migration.migration import Migration, Migrations, Version
from noesium_stream.kernel.reach import Reach
from noesium_stream.kernel.recording.fork import initial_of
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.recording.replay_index import RecordedStep, ReplayIndex
from noesium_stream.kernel.run_history import superstep
from noesium_stream.kernel.segment_state import STARTED
from noesium_stream.kernel.state.typed_json import readable
from noesium_stream.kernel.verify.difference import (
    NOTHING,
    Difference,
    describe_call,
    first_difference,
    shown,
    source_of,
    text,
)
from noesium_stream.kernel.verify.moves import compare_move, compare_segment
from noesium_stream.kernel.verify.undoing import undoing_graphs
from noesium_stream.kernel.verify.verify_journal import InRange, VerifyJournal
from noesium_stream.kernel.verify.versions import Part, parts

_REFUSALS: Final = frozenset(
    {
        EventValidationError.__name__,
        RecordTooLargeError.__name__,
        "UnknownSchemaError",
        CapabilityOutputError.__name__,
    }
)
_SPINS: Final = 20
UNVERSIONED: Final = "0.0.0"
"""The version of code that declares none."""


@dataclass(frozen=True, slots=True)
class ReplayTarget:
    """The code that a run is replayed against.

    Attributes:
        graph: compiled; it is not run by itself, only through the kernel.
        ref: the reference that runs of this code are pinned to.
        initial_state: returns the state at the beginning of a run, from its input and the requested
            capability.
        result: returns the run's result from the final state.
        recursion_limit: largest number of supersteps.
        mode: what its nodes may do.
        agent_type: the agent type of its runs; None accepts runs of any agent.
        reference: `MODULE:NAME`, where it was loaded from.
        agent: the agent whose attributes may be compensation graphs.
        versions: this version of the graph, and those that its runs may come from; None: only this one.
    """

    graph: CompiledStateGraph[Any, Any, Any, Any]
    ref: GraphRef
    initial_state: Callable[[dict[str, Any], str | None], Any] = lambda input, capability_id: input
    result: Callable[[Any], Any] = readable
    recursion_limit: int = 1_000
    agent_type: str | None = None
    reference: str | None = None
    mode: ExecutionMode = ExecutionMode.PRAGMATIC
    agent: object = None
    versions: Migrations | None = None

    def of(self, ref: GraphRef) -> ReplayTarget | None:
        """The code of one version; None if it is not included."""
        found = () if self.versions is None else self.versions.since(ref.model_dump())
        if not found:
            return self if ref == self.ref else None
        leaving = found[0].leaving
        if leaving is None:
            return self
        begin = leaving.initial_state or self.initial_state
        return dataclasses.replace(self, graph=found[0].graph, ref=ref, initial_state=begin)

    def durable(self) -> DurableGraph:
        """The graph behind a journal; it walks a run from its beginning."""
        owner = None if self.agent is None else type(self.agent)
        return DurableGraph(
            self.graph,
            mode=self.mode,
            walk_steps=sys.maxsize,
            owner=owner,
            toolbox=getattr(self.agent, "toolbox", None),
        )

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What the code of its versions can name."""
        return (self.durable().reach,) if self.versions is None else self.versions.reaches

    def begin(self, run: RecordedRun) -> Any:
        """The state at the beginning of a recorded run."""
        started = run.started.payload
        initial = self.initial_state(run.input, started.get("capability_id"))
        return initial_of(started.get("forked_from"), initial)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a replay: `difference` None means that everything is as recorded.

    `steps` is the number of repeated steps, `status` the status of the recorded run. For a run that was moved
    between versions, `note` says what was not verified, or whether the run can be moved.
    """

    run_id: str
    steps: int
    status: str
    difference: Difference | None = None
    note: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return self.difference is None


async def verify_run(target: ReplayTarget, run: RecordedRun, in_range: InRange) -> Verdict:
    """Replay `run` against `target`; no effect is performed and nothing is written.

    A moved run is verified part by part, each with the version that made it if `target` includes it; the last
    part with `target` in any case. The moves are repeated as well.

    Args:
        target: the code.
        run: the recording.
        in_range: whether a version lies in a range, as the registry judges it.
    """
    split = parts(run)
    if len(split) == 1:
        return await _verify_part(target.of(split[0].ref) or target, run, in_range, run)
    steps, missing = 0, []
    for number, part in enumerate(split):
        last = part is split[-1]
        code = target.of(part.ref) or (target if last else None)
        difference = await _verify_move(target, run, split[number - 1], part) if number else None
        if difference is not None:
            return Verdict(run.run_id, steps, _status(run), difference)
        if code is None:
            missing.append(f"up to step {(part.until or 1) - 1} (version {part.ref.version})")
            continue
        verdict = await _verify_part(code, part.run, in_range, run if last else None)
        steps += verdict.steps
        if not verdict.is_same:
            return dataclasses.replace(verdict, steps=steps, status=_status(run))
    note = f"not verified {', '.join(missing)}: this code does not carry it" if missing else None
    return Verdict(run.run_id, steps, _status(run), note=note)


async def _verify_move(target: ReplayTarget, run: RecordedRun, before: Part, part: Part) -> Difference | None:
    if part.move is not None and part.move.event_type == STARTED:
        code = target.of(part.ref) or target
        initial = None if before.move is not None else code.begin(run)
        version = Version(part.ref, code.durable())
        return await compare_segment(version, run, part.before, part.move, initial)
    line = () if target.versions is None else target.versions.since(before.ref.model_dump())[:2]
    if part.move is None or len(line) < 2 or line[1].ref != part.ref:
        return None
    return await compare_move(line, run, part.before, part.move, begun_by(target, run))


def begun_by(target: ReplayTarget, run: RecordedRun) -> Callable[[Migration], Any]:
    """The initial state of a run, in the form of a migration's version."""

    def begun(migration: Migration) -> Any:
        begin = migration.initial_state or target.initial_state
        return dataclasses.replace(target, initial_state=begin).begin(run)

    return begun


def _status(run: RecordedRun) -> str:
    return "open" if run.terminal is None else run.terminal.event_type.rpartition(".")[2]


async def _verify_part(
    target: ReplayTarget, run: RecordedRun, in_range: InRange, whole: RecordedRun | None
) -> Verdict:
    """Replay the part of one version, and then, if `whole` is given, the compensations of all parts."""
    status = _status(run)
    if status in ("expired", "refused"):
        return Verdict(run.run_id, 0, status)  # it never ran
    journal = VerifyJournal(ReplayIndex(run), in_range)
    outcome = await _replay(journal, _execute(target, journal, run))
    difference = journal.difference or _judge(target, journal, outcome)
    if difference is not None and difference.node is not None:
        node = target.graph.nodes.get(difference.node)
        where = source_of(node.bound) if node else None
        version = run.started.payload["agent_version"]
        where = f"{where} (recorded with {version})" if where else f"recorded with {version}"
        difference = dataclasses.replace(difference, where=where)
    if difference is not None:
        return Verdict(run.run_id, len(journal.done), status, difference)
    undone, difference = (0, None) if whole is None else await _replay_undoing(target, whole, in_range)
    return Verdict(run.run_id, len(journal.done) + undone, status, difference)


async def _replay_undoing(
    target: ReplayTarget, run: RecordedRun, in_range: InRange
) -> tuple[int, Difference | None]:
    """Replay the graphs that undid parts of the run: the number of repeated steps, the first difference."""
    steps = 0
    for part, graph in undoing_graphs(run, target.agent, target.reaches):
        journal = VerifyJournal(ReplayIndex(run, part), in_range)
        durable = DurableGraph(graph, mode=target.mode)
        config: RunnableConfig = {"recursion_limit": target.recursion_limit}
        work = durable.execute_within(journal, part.state, part.within, config)
        outcome = await _replay(journal, _caught(journal, work))
        difference = journal.difference or _judge_undoing(journal, outcome)
        steps += len(journal.done)
        if difference is not None:
            node = graph.nodes.get(difference.node or "")
            where = source_of(node.bound) if node else None
            what = f"{difference.what}, undoing {part.name}"
            return steps, dataclasses.replace(difference, what=what, where=where)
    return steps, None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The end of the graph: a state, or an error."""

    state: Any = None
    error: Exception | None = None


async def _replay(journal: VerifyJournal, execution: Coroutine[Any, Any, _Outcome]) -> _Outcome:
    """Run the graph until it ends or the first difference is found."""
    work = asyncio.create_task(execution)
    decided = asyncio.create_task(journal.decided.wait())
    try:
        await asyncio.wait((work, decided), return_when=asyncio.FIRST_COMPLETED)
        for _ in range(_SPINS if journal.decided.is_set() else 0):
            await asyncio.sleep(0)  # let nodes of the same superstep begin, to find out which one is missing
        return work.result() if work.done() else _Outcome()
    finally:
        for task in (work, decided):
            task.cancel()
        await asyncio.gather(work, decided, return_exceptions=True)


async def _execute(target: ReplayTarget, journal: VerifyJournal, run: RecordedRun) -> _Outcome:
    async def work() -> Any:
        config: RunnableConfig = {"recursion_limit": target.recursion_limit}
        moved = journal.history.migrated is not None  # its graph begins with the state of the move
        initial = None if moved else target.begin(run)
        state = await target.durable().execute(journal, initial, config)
        return None if journal.ended else to_json(target.result(state), "result")

    return await _caught(journal, work())


async def _caught(journal: VerifyJournal, work: Coroutine[Any, Any, Any]) -> _Outcome:
    try:
        return _Outcome(await work)
    except GraphBubbleUp:
        return _Outcome()
    except Exception as error:
        return _Outcome(error=error)


def _judge(target: ReplayTarget, journal: VerifyJournal, outcome: _Outcome) -> Difference | None:
    """The difference of the whole run, if no single step of the replay differed."""
    recording = journal.recording
    if journal.strange is not None:
        return _strange(journal)
    left_out = _left_out(journal)
    terminal = recording.run.terminal
    kind = None if terminal is None else terminal.event_type
    payload: dict[str, Any] = {} if terminal is None else terminal.payload
    if kind == "run.failed" and payload["error_type"] not in _REFUSALS:
        return _judge_failure(payload, journal, outcome) or left_out
    failing = any(step.final_failure and step.key in journal.done for step in recording.steps.values())
    if outcome.error is not None and not journal.ended and not (failing and kind != "run.completed"):
        now = f"{type(outcome.error).__name__}: {brief(outcome.error)}"
        recorded = "completed" if kind == "run.completed" else "open"
        return _last(journal, "the run fails now", recorded, text(now))
    if left_out is not None:
        return left_out
    if kind == "run.completed":
        return _judge_result(journal, payload.get("result"), outcome)
    return None


def _judge_undoing(journal: VerifyJournal, outcome: _Outcome) -> Difference | None:
    """The difference of a compensation graph, if no single step of it differed."""
    if journal.strange is not None:
        return _strange(journal)
    recording = journal.recording
    failing = any(step.final_failure and step.key in journal.done for step in recording.steps.values())
    if outcome.error is not None and not journal.ended and not failing:
        now = f"{type(outcome.error).__name__}: {brief(outcome.error)}"
        return _last(journal, "it fails now", "completed" if recording.is_complete else "open", text(now))
    return _left_out(journal)


def _strange(journal: VerifyJournal) -> Difference:
    """The difference for a node that the recording does not have, or has under another name."""
    assert journal.strange is not None
    key, now = journal.strange
    siblings = journal.recording.siblings(key)
    missing = next((step for step in siblings if step.key not in journal.entered), None)
    step = superstep(key)
    if missing is not None:
        return Difference(step, missing.node, "another node runs here", missing.node, now)
    nodes = ", ".join(sorted({step.node for step in siblings})) or "the end of the run"
    return Difference(
        step, now, "it runs here now", nodes, " and ".join(filter(None, [_beside(siblings), now]))
    )


def _beside(siblings: list[RecordedStep]) -> str:
    return ", ".join(sorted({step.node for step in siblings}))


def _left_out(journal: VerifyJournal) -> Difference | None:
    """The recorded step or call that the replay never reached."""
    recording = journal.recording
    for step in sorted(recording.steps.values(), key=lambda step: step.index):
        if step.key in journal.done:
            continue
        if step.key not in journal.entered and not (step.frontier and step.failures):
            number = superstep(step.key)
            other = journal.beyond.get(number)
            what = "another node runs here" if other else "it does not run any more"
            return Difference(number, step.node, what, step.node, other or NOTHING)
        missing = step.unmade()
        if missing is not None:
            recorded = describe_call(missing.event.event_type, missing.event.payload)
            now = journal.stray(step.key) or NOTHING
            what = "another call comes first" if journal.stray(step.key) else "a call is not made any more"
            return Difference(superstep(step.key), step.node, what, recorded, now)
        if not step.frontier:
            return Difference(superstep(step.key), step.node, "it does not end any more", "ended", NOTHING)
    return None


def _judge_failure(payload: dict[str, Any], journal: VerifyJournal, outcome: _Outcome) -> Difference | None:
    recorded = text(f"{payload['error_type']}: {payload['message']}")
    if journal.ended:
        of_a_node = any(step.final_failure for step in journal.recording.steps.values())
        if journal.beyond and not of_a_node:
            number, node = min(journal.beyond.items())
            return Difference(number, node, "the run goes on now", recorded, node)
        return None
    if outcome.error is None:
        return _last(journal, "the run does not fail any more", recorded, f"completed {shown(outcome.state)}")
    now = text(f"{type(outcome.error).__name__}: {brief(outcome.error)}")
    # After a crash a run ends with the journal's record of the node's error; and an effect's error of a class
    # that is not known here stands for the recorded one.
    same = {recorded, recorded.removeprefix("NodeExecutionError: ")}
    if now in same or text(": ".join(failure_of(outcome.error))) == recorded:
        return None
    return _last(journal, "the run fails otherwise", recorded, now)


def _judge_result(journal: VerifyJournal, recorded: Any, outcome: _Outcome) -> Difference | None:
    found = first_difference(recorded, outcome.state)
    if found is None:
        return None
    path, left, right = found
    what = f"the result differs at {path}" if path else "the result differs"
    return _last(journal, what, shown(left), shown(right), path.partition(".")[0].partition("[")[0])


def _last(journal: VerifyJournal, what: str, recorded: str, now: str, key: str = "") -> Difference:
    """A difference of the whole run: of its last node, or of the last writer of this part of the result."""
    steps = sorted(journal.recording.steps.values(), key=lambda step: step.index)
    wrote = [
        step
        for step in steps
        if step.completed is not None and key and key in _written(step.completed.payload.get("delta"))
    ]
    if not steps:
        return Difference(0, None, what, recorded, now)
    last = (wrote or steps)[-1]
    return Difference(superstep(last.key), last.node, what, recorded, now)


def _written(delta: Any) -> set[str]:
    """The channels that a recorded delta writes."""
    if isinstance(delta, list):
        return set().union(*map(_written, delta)) if delta else set()
    if isinstance(delta, dict) and delta.keys() == {"__command__"}:
        return _written(delta["__command__"]["update"])
    return set(delta) if isinstance(delta, dict) else set()
