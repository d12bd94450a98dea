"""Where a step stands in its run, and how its calls are told apart.

A call is identified by its content and how often the same one occurred in this step, not by a counter:
under `gather` the order of calls does not matter, and a changed call is found out.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from typing import Any, Final, NoReturn

from noesium_stream.clock import derived_id, to_rfc3339
from noesium_stream.errors import KernelError, ReplayDivergenceError
from noesium_stream.event.calls import CALLS, input_of
from noesium_stream.event.canonical import canonical_json
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.event.standard import (
    EffectCompleted,
    EffectFailed,
    EffectOutcomeUnknown,
    NodeEntered,
    NodeRetried,
)
from noesium_stream.kernel.decorators import NodeMeta
from noesium_stream.kernel.history import StepKey
from noesium_stream.kernel.journal import RunJournal

PATIENCE_S: float = 10.0
"""How long a new call waits for other tasks of its node to make those that are on the log."""

_TURNS: Final = 50
_PAUSE_S: Final = 0.01
_SHOWN: Final = 200

INTERRUPT: Final = "interrupt"
"""The kind of the questions that LangGraph's `interrupt()` asks."""


class Place:
    """One execution of one node: its key, its `kernel.node.entered`, and the calls that it has made so far.

    Attributes:
        called: fingerprints of the calls of this execution.
        closed: the node has ended; what it has left running may say what came of its calls, and no more.
        tried_again: whether an effect that had failed was tried again; then calls may differ from the log's.
        undoes: what the graph undoes that the node is of; its effects are not undone themselves.
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
        self.undoes = journal.history.undoes(key)
        self._seen: defaultdict[str, int] = defaultdict(int)
        self._resumed = key in journal.history.entered
        self.entered = self._enter(meta, input_hash, call_hash)

    def _enter(self, meta: NodeMeta, input_hash: str | None, call_hash: str | None) -> EventEnvelope:
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
                compensation=meta.compensation if self.undoes is None else None,
                input_hash=call_hash,
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

    def _branches(self, input_hash: str | None) -> bool:
        failed = self.history.failed.get(self.key)
        before = failed.payload.get("input_hash") if failed else None
        return None not in (before, input_hash) and before != input_hash

    def _last_failure(self) -> str:
        failed = self.history.failed.get(self.key)
        return f"{failed.payload['error_type']}: {failed.payload['message']}" if failed else "unknown"

    def begin_again(self) -> None:
        """The body is executed again, with answers to questions that stay asked."""
        asked = {what: n for what, n in self._seen.items() if what.startswith(f"{INTERRUPT}:")}
        self._seen = defaultdict(int, asked)

    @property
    def path(self) -> tuple[str, str]:
        """Superstep and task path, as texts."""
        return str(self.key[0]), self.key[1]

    def event_key(self, last: str) -> str:
        """The idempotency key of one of the step's events."""
        return "/".join((self.run_id, *self.path, last))

    def derived(self, *parts: str) -> str:
        """An id that is the same on every execution of this node."""
        return derived_id(self.run_id, *self.path, *parts)

    def call_id(self, kind: str, name: str, arguments: Any) -> str:
        """The id of the next call of this content; `arguments` have a JSON form."""
        self.check_open()
        content = hashlib.sha256(canonical_json(arguments)).hexdigest()
        occurrence = self.occurrence(f"{kind}:{name}:{content}")
        call_id = self.derived(kind, name, content, str(occurrence))
        self.called.add(call_id)
        return call_id

    def unmade(self) -> list[EventEnvelope]:
        """What an earlier execution of this node asked for, and this one has not (yet).

        A node that failed before may take another way the next time, and so may one whose effect failed and
        is tried again; then there is nothing to compare.
        """
        if not self._resumed or self.tried_again or self.history.failures[self.key]:
            return []
        calls = self.history.calls.get(self.entered.event_id, {})
        return [event for fingerprint, event in calls.items() if fingerprint not in self.called]

    async def before_call(self, fingerprint: str, what: str) -> None:
        """Return when this call may be made: what the log has of this node was asked for again.

        Calls are made in the order of the code, so a new one comes after those on the log; where several
        tasks of a node call, the others are waited for. Code that has parted from the log does nothing new.

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
        """Say what the log has and what this execution did.

        Raises:
            ReplayDivergenceError: always.
        """
        raise ReplayDivergenceError(
            f"run {self.run_id}, step {self.key[0]}, node {self.node}: the log records {_asked(recorded)}; "
            f"this execution made {now}.",
            hint="The node's code or its input differs from the recorded one: `noesium verify` compares.",
        )

    def occurrence(self, what: str) -> int:
        """How often this was asked before in this execution."""
        index = self._seen[what]
        self._seen[what] += 1
        return index

    def span(self) -> TraceContext:
        """A new span within the node's."""
        return self.entered.trace.child(self.clock.token(8))

    def stage(self, event: DomainEvent, cause: str | None = None, key: str | None = None) -> EventEnvelope:
        """Put an event of this step into the next commit; it is caused by the node's entry by default."""
        if not isinstance(event, EffectCompleted | EffectFailed | EffectOutcomeUnknown):
            self.check_open()
        cause = cause or self.entered.event_id
        return self.journal.stage(event, trace=self.span(), causation_id=cause, idempotency_key=key)

    def check_open(self) -> None:
        """A call of a node that has ended would belong to no step.

        Raises:
            KernelError: it has ended: returned, failed, run out of time, or been cancelled.
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
    return f"a call of {payload['name']} {_short(payload['arguments'])}"


def _short(value: Any) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
