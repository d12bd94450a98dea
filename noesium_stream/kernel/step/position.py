"""The position of a step in its run, and the identity of its calls.

A call is identified by its content and the number of equal calls before it in this step, not by a counter:
under `gather` the order of calls does not matter, and a changed call is detected.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from contextvars import ContextVar, Token
from random import Random
from typing import Any, Final, NoReturn

from noesium_stream.clock import derived_id, to_rfc3339
from noesium_stream.errors import (
    EventValidationError,
    KernelError,
    ReplayDivergenceError,
    StateError,
    UnknownSchemaError,
)
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.rules.agent_calls import CALLS, input_of
from noesium_stream.event.rules.model_calls import made_within
from noesium_stream.event.rules.tool_calls import is_told
from noesium_stream.event.sealing.seal import MEMORY
from noesium_stream.event.standard import (
    EffectCompleted,
    EffectFailed,
    EffectOutcomeUnknown,
    NodeEntered,
    NodeRetried,
)
from noesium_stream.kernel.decorators import NodeMeta
from noesium_stream.kernel.journal import FactTopic, RunJournal
from noesium_stream.kernel.run_history import StepKey
from noesium_stream.kernel.state.typed_json import check_size
from noesium_stream.kernel.step.subgraph_calls import Subcalls

PATIENCE_S: float = 10.0
"""How long a new call waits for other tasks of its node to make the calls that are on the log."""

_TURNS: Final = 50
_PAUSE_S: Final = 0.01
_SHOWN: Final = 200

INTERRUPT: Final = "interrupt"
"""The kind of the questions of LangGraph's `interrupt()`."""


_CURRENT: ContextVar[Place | None] = ContextVar("noesium_step", default=None)

_RESERVED = (
    "run.",
    "kernel.",
    "effect.",
    "capability.",
    "tool.invocation.",
    "command.",
    "partition.",
    "approval.",
    "timer.",
    "task.",
)


def enclosing_step() -> Place | None:
    """The step whose body contains the calling code; None outside a step."""
    return _CURRENT.get()


def this_step() -> Place:
    """The step whose body contains the calling code.

    Raises:
        KernelError: called outside a node, or in a thread that the node started by itself.
    """
    place = _CURRENT.get()
    if place is None:
        raise KernelError(
            "current_step() was called outside a node.",
            hint="Call it in the node's own task, in asyncio children of it or under asyncio.to_thread; bare "
            "threads and executors do not carry the step.",
        )
    return place


class Place:
    """One execution of one node: its key, its `kernel.node.entered`, and the calls that it has made so far.

    Attributes:
        called: fingerprints of the calls of this execution.
        closed: the node has ended; tasks that it has left running may record outcomes of its calls, nothing
            else.
        emitted: the domain events from `Step.emit` so far.
        taken: one more than the number of the last signal that the body has taken, by name.
        facade: the `Step` that the body uses; None: it has not asked for one.
        pieces: the pieces of the answer that the body has written; None: it has not asked for them.
        silent: this execution writes no pieces: it is compared with another one.
        random: the source of `Step.random`; None: the body has not asked for it (one has 2.5 kB).
        tried_again: whether a failed effect was retried; then calls may differ from the log's.
    """

    def __init__(
        self,
        journal: RunJournal,
        node: str,
        key: StepKey,
        meta: NodeMeta,
        attempt: int,
        input_hash: str | None = None,
        call_hash: str | None = None,
        *,
        argument: str | None = None,
        is_graph: bool = False,
    ) -> None:
        self.journal = journal
        self.history = journal.history
        self.clock = journal.clock
        self.run_id = journal.identity.run_id
        self.node = node
        self.key = key
        self.attempt = attempt
        self.called: set[str] = set()
        self.tried_again = False
        self.closed = False
        self.emitted: list[DomainEvent] = []
        self.taken: dict[str, int] = {}
        self.facade: Any = None
        self.pieces: Any = None
        self.silent = False
        self.random: Random | None = None
        self._is_graph = is_graph
        self._subcalls: Subcalls | None = None
        self._seen: defaultdict[str, int] = defaultdict(int)
        self._resumed = key in journal.history.entered
        self.entered = self._enter(meta, input_hash, call_hash, argument)
        recorded = self.history.calls.get(self.entered.event_id, {}) if self._resumed else {}
        self._not_repeated = dict(recorded)

    def _enter(
        self, meta: NodeMeta, input_hash: str | None, call_hash: str | None, argument: str | None
    ) -> EventEnvelope:
        journal, (step, task_path) = self.journal, self.key
        entered = self.history.entered.get(self.key)
        if entered is None:
            event = NodeEntered(
                run_id=self.run_id,
                node=self.node,
                step=step,
                task_path=task_path,
                attempt=self.attempt,
                deterministic=meta.deterministic,
                entropy_sources=list(meta.entropy_sources),
                compensation=meta.compensation if meta.compensation and self.undoes is None else None,
                input_hash=call_hash,
                argument=argument,
            )
            trace = journal.identity.trace.child(self.clock.token(8))
            cause = self.history.last_event_id or journal.identity.started_event_id
            return journal.stage(
                event, trace=trace, causation_id=cause, idempotency_key=self.event_key("entered")
            )
        if self.attempt > 1:
            retried = NodeRetried(
                run_id=self.run_id,
                node=self.node,
                step=step,
                task_path=task_path,
                attempt=self.attempt,
                cause=self._last_failure(),
                branch=self._branches(input_hash),
            )
            trace = entered.trace.child(self.clock.token(8))
            journal.stage(retried, trace=trace, causation_id=entered.event_id)
        return entered

    @property
    def undoes(self) -> str | None:
        """The part that is undone by the node's graph; such a node's effects are not undone themselves."""
        return self.history.undoes(self.key)

    @property
    def subcalls(self) -> Subcalls:
        """The calls of subgraphs that this execution makes."""
        if self._subcalls is None:
            self._subcalls = Subcalls(self.history, self.key, self._is_graph)
        return self._subcalls

    @property
    def reached_out(self) -> bool:
        """Whether the step has done more than compute and remember: a call, an effect, a question, an event.

        What is written to memory is read from the log alone, so that nobody sees it before its commit.
        """
        return bool(self.called) or any(event.event_type() not in MEMORY for event in self.emitted)

    def enter(self) -> Token[Place | None]:
        """Make this the step of the calling code; pass the result to `leave`."""
        self.journal.activity.enter(self, _CURRENT.get())
        return _CURRENT.set(self)

    def leave(self, token: Token[Place | None]) -> None:
        """Undo `enter`; the step makes no calls any more."""
        self.closed = True
        if self.pieces is not None:
            self.pieces.close()
        self.journal.activity.leave(self)
        _CURRENT.reset(token)

    def _branches(self, input_hash: str | None) -> bool:
        failed = self.history.failed.get(self.key)
        before = failed.payload.get("input_hash") if failed else None
        return None not in (before, input_hash) and before != input_hash

    def _last_failure(self) -> str:
        failed = self.history.failed.get(self.key)
        return f"{failed.payload['error_type']}: {failed.payload['message']}" if failed else "unknown"

    def begin_again(self) -> None:
        """Execute the body again from its first line, with answers to questions that stay asked."""
        asked = {what: n for what, n in self._seen.items() if what.startswith(f"{INTERRUPT}:")}
        self._seen = defaultdict(int, asked)
        if self._subcalls is not None:
            self._subcalls.begin_again()
        self.emitted.clear()
        if self.pieces is not None:
            self.pieces.close()
        self.pieces = None
        self.random = None

    @property
    def path(self) -> tuple[str, str]:
        """Superstep and task path, as texts."""
        return str(self.key[0]), self.key[1]

    def event_key(self, last: str) -> str:
        """The idempotency key of one of the step's events."""
        return f"{self.run_id}/{self.key[0]}/{self.key[1]}/{last}"

    def derived(self, *parts: str) -> str:
        """An id that is the same on every execution of this node."""
        return derived_id(self.run_id, *self.path, *parts)

    def uuid(self) -> str:
        """A new id, the same on every execution of this node."""
        return self.derived("uuid", str(self.occurrence("uuid")))

    def call_id(self, kind: str, name: str, arguments: Any) -> str:
        """The id of the next call of this content; `arguments` have a JSON form."""
        self.check_open()
        content = hashlib.sha256(canonical_json(arguments)).hexdigest()
        occurrence = self.occurrence(f"{kind}:{name}:{content}")
        call_id = self.derived(kind, name, content, str(occurrence))
        self.note_call(call_id)
        return call_id

    def labels(self) -> frozenset[str]:
        """The labels of all that the step can have read by now (see `event/rules/provenance.py`)."""
        return self.history.provenance.reaching(self.entered.event_id)

    def next_call_id(self, kind: str, name: str, arguments: Any) -> str:
        """What `call_id` would return; counts nothing."""
        content = hashlib.sha256(canonical_json(arguments)).hexdigest()
        return self.derived(kind, name, content, str(self._seen.get(f"{kind}:{name}:{content}", 0)))

    def note_call(self, call_id: str) -> None:
        """Note that this execution makes the call of this id."""
        self.check_open()
        self.called.add(call_id)
        self._not_repeated.pop(call_id, None)

    def unmade(self) -> list[EventEnvelope]:
        """The requests of an earlier execution of this node that this one has not made (yet).

        A node that failed before may take another way the next time, and so may a node whose effect failed
        and is retried; then there is nothing to compare. Calls within a tool's call that has an outcome are
        not made again.
        """
        if not self._resumed or self.tried_again or self.history.failures[self.key]:
            return []
        outcomes = self.history.outcomes
        return [one for one in self._not_repeated.values() if made_within(one.payload) not in outcomes]

    def check_complete(self) -> None:
        """Compare the actions of this step with those on the log of its earlier execution.

        Raises:
            ReplayDivergenceError: a recorded call was not made this time.
        """
        unmade = self.unmade()
        if unmade:
            self.refuse_divergence(unmade[0], "no such call")
        lost = None if self._subcalls is None else self._subcalls.lost
        if lost is not None:
            raise ReplayDivergenceError(
                f"run {self.run_id}, step {self.key[0]}, node {self.node}: the log records a call of a graph "
                f"that begins with {lost}; this execution called it with another input.",
                hint="The node's code or its input differs from the recorded execution.",
            )

    async def before_call(self, fingerprint: str, what: str) -> None:
        """Return when this call may be made: all recorded requests of this node were repeated.

        Calls are made in the order of the code, so a new one comes after those on the log. If several tasks
        of a node call, this waits for the others. Code that has diverged from the log does nothing new.

        Raises:
            ReplayDivergenceError: a recorded call was not made again; nothing was done.
        """
        if not self._resumed or fingerprint in self.history.calls.get(self.entered.event_id, {}):
            return
        for turn in range(_TURNS + round(PATIENCE_S / _PAUSE_S)):
            if not self.unmade():
                return
            await asyncio.sleep(0 if turn < _TURNS else _PAUSE_S)
        self.refuse_divergence(self.unmade()[0], f"{what} instead, which was not done")

    def refuse_divergence(self, recorded: EventEnvelope, now: str) -> NoReturn:
        """Report a recorded request and the different one of this execution.

        Raises:
            ReplayDivergenceError: always.
        """
        raise ReplayDivergenceError(
            f"run {self.run_id}, step {self.key[0]}, node {self.node}: the log records {_asked(recorded)}; "
            f"this execution made {now}.",
            hint="The node's code or its input differs from the recorded one: `noesium verify` compares.",
        )

    def occurrence(self, what: str) -> int:
        """The number of equal requests before this one in this execution."""
        index = self._seen[what]
        self._seen[what] += 1
        return index

    def span(self) -> TraceContext:
        """A new span within the node's."""
        return self.entered.trace.child(self.clock.token(8))

    def stage(self, event: DomainEvent, cause: str | None = None, key: str | None = None) -> EventEnvelope:
        """Stage an event of this step for the next commit; its cause is the node's entry by default."""
        if not isinstance(event, EffectCompleted | EffectFailed | EffectOutcomeUnknown):
            self.check_open()
        cause = cause or self.entered.event_id
        return self.journal.stage(event, trace=self.span(), causation_id=cause, idempotency_key=key)

    def stage_to(self, event: DomainEvent, to: FactTopic, key: str) -> EventEnvelope:
        """As `stage`, and to a topic of facts in the same commit; its topic is known to the journal."""
        self.check_open()
        return self.journal.stage(
            event, trace=self.span(), causation_id=self.entered.event_id, idempotency_key=key, to=to
        )

    def stage_events(self, returned: Sequence[DomainEvent]) -> None:
        """Stage the emitted events, then the returned ones; a node that fails emits nothing.

        Raises:
            StateError: an event has a type that only the kernel writes, or the log would refuse it: its type
                is unknown there, or its payload does not match the type's schema.
        """
        for index, event in enumerate([*self.emitted, *returned]):
            if event.event_type().startswith(_RESERVED):
                raise StateError(
                    f"The node {self.node} emits {event.event_type()}, which the kernel alone writes.",
                    hint="Give the event a domain of its own, such as `ticket.answered`.",
                )
            payload = event.payload()
            if is_told(event.event_type(), payload):
                raise StateError(
                    f"The node {self.node} emits {event.event_type()} with a run_id: the kernel alone writes "
                    "that, about calls that it makes.",
                    hint="Leave run_id out, or have a tool called with step.tool, a model by a JournaledLLM.",
                )
            check_size(payload, event.event_type(), f"The node {self.node}")
            self._check_known(event, payload)
            self.stage(event, key=self.event_key(str(index)))

    def _check_known(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        try:
            self.journal.check(event, payload)
        except UnknownSchemaError as error:
            raise StateError(
                f"The node {self.node} emits {event.event_type()} {event.event_version()}, an event that is "
                f"not registered: {error.message}",
                hint=f"Name its class {type(event).__name__} in the agent's `events`.",
            ) from error
        except EventValidationError as error:
            raise StateError(
                f"The node {self.node} emits {event.event_type()}, which its schema refuses: {error.message}",
                hint=error.hint,
            ) from error

    def check_open(self) -> None:
        """Refuse a call of a node that has ended: it would belong to no step.

        Raises:
            KernelError: it has returned, failed, run out of time, or been cancelled.
        """
        if self.closed:
            raise KernelError(
                f"The node {self.node} has ended, and something that it left running makes a call.",
                hint="Await what a node starts before it returns. A sync node cannot be broken off: after a "
                "timeout or a cancellation it ends at its next call.",
            )

    def since(self, begun: float) -> int:
        """Milliseconds since `begun` by the monotonic clock."""
        return max(0, round((self.clock.monotonic() - begun) * 1000))


def _asked(call: EventEnvelope) -> str:
    payload = call.payload
    if call.event_type == "approval.requested":
        return f"the question {_short(payload['question'])}"
    if call.event_type == "timer.started":
        return f"a timer until {to_rfc3339(payload['due_ms'])}"
    if call.event_type in CALLS:
        return f"a call of {payload['capability_id']} {_short(input_of(payload))}"
    if call.event_type == "capability.requested":
        return f"a call of {payload['capability_id']}"
    return f"a call of {payload['name']} {_short(payload['arguments'])}"


def _short(value: Any) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
