"""Effects that wait for a person's decision: lists them and makes the decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.errors import EffectDecisionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.effect_ledger import EFFECT_HANDLERS, EffectLedger, refusal, undecided
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import EffectResolved
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of

Decision = Literal["result", "retry", "fail"]

_TYPES: Final = (
    "run.started",
    "run.compensation.started",
    "effect.requested",
    "effect.completed",
    "effect.failed",
    "effect.outcome.unknown",
    "effect.resolved",
    *ENDINGS,
)


@dataclass(frozen=True, slots=True)
class UnresolvedEffect:
    """An effect that waits for a person's decision.

    `reason` says why it waits, `since_ms` since when (milliseconds since the epoch). `idempotency_key` is the
    key that the function was called with: look it up in the external system. `compensates` is set if the
    effect compensates another effect (its id), a node (`step/task_path`) or a run, or is a part of that.
    `outcome_id` is the id of the event that waits for the decision. `ended`: the run has ended, and no
    decision is possible any more.
    """

    run_id: str
    agent_type: str
    effect_id: str
    name: str
    effect_class: str
    reason: str
    since_ms: int
    idempotency_key: str
    arguments: Any
    compensates: str | None
    outcome_id: str
    ended: bool = False


async def open_ledgers(
    log: EventLog, agent_type: str, run_id: str | None = None, *, ended: bool = False
) -> dict[str, EffectLedger]:
    """Fold the effects of an agent type's open runs, by run id, or of one run.

    `ended`: fold those of ended runs instead.
    """
    seen: defaultdict[str, int] = defaultdict(int)
    found: dict[str, EffectLedger] = {}
    over: dict[str, EffectLedger] = {}
    async for record in _journaled(log, agent_type, run_id):
        try:
            number = record.number
            if number is None or number < seen[record.key] or run_id not in (None, record.key):
                continue  # not a run's record, or a repeated one (law 2)
            event = record.unchecked
            seen[record.key] = number + 1
            _take(found, over, record.key, event)
        except WRONG as error:
            pass_over(record, error)
    return over if ended else found


def _take(
    found: dict[str, EffectLedger], over: dict[str, EffectLedger], run_id: str, event: EventEnvelope
) -> None:
    if event.event_type == "run.started":
        found[run_id] = EffectLedger()
    elif event.event_type in ENDINGS:
        ledger = found.pop(run_id, None)  # the first terminal event wins; nothing is opened again
        if ledger is not None:
            over[run_id] = ledger
    elif run_id in found:
        EFFECT_HANDLERS[event.event_type](found[run_id], event, event.payload)


async def _journaled(log: EventLog, agent_type: str, run_id: str | None) -> AsyncIterator[Record]:
    for generation in await open_generations(log, agent_type):
        until = await log.end(generation.journal)
        if run_id is not None:
            partition = partition_of(run_id, len(until))
            until = {partition: until[partition]}
        async for record in log.read(generation.journal, {}, until=until, types=_TYPES):
            yield record


def unresolved_effects(
    ledger: EffectLedger, agent_type: str, *, ended: bool = False
) -> list[UnresolvedEffect]:
    """List the effects of a run that wait for a decision, or did when it ended, in recorded order."""
    found = []
    for outcome in undecided(ledger):
        requested = ledger.requested[outcome.payload["effect_id"]].payload
        payload = outcome.payload
        found.append(
            UnresolvedEffect(
                run_id=payload["run_id"],
                agent_type=agent_type,
                effect_id=payload["effect_id"],
                name=requested["name"],
                effect_class=requested["effect_class"],
                reason=payload.get("reason") or f"it failed: {payload['error_type']}: {payload['message']}",
                since_ms=outcome.timestamp_ms,
                idempotency_key=requested["idempotency_key"],
                arguments=requested.get("arguments"),
                compensates=requested.get("compensates"),
                outcome_id=outcome.event_id,
                ended=ended,
            )
        )
    return found


def resolution(
    ledger: EffectLedger,
    run_id: str,
    effect_id: str,
    decision: Decision,
    result: Any,
    reason: str | None,
    resolved_by: str,
) -> EffectResolved:
    """Make the event that decides an effect, given by its id or a prefix of it.

    Raises:
        EffectDecisionError: there is no such effect, it waits for no decision, or not for this one.
        StateError: `result` has no JSON form.
    """
    if decision not in ("result", "retry", "fail"):
        raise EffectDecisionError(f"{decision!r} is no decision: it is result, retry or fail.")
    if decision != "result" and result is not None:
        raise EffectDecisionError(f"The decision {decision} comes without a result.")
    matching = [known for known in ledger.requested if effect_id and known.startswith(effect_id)]
    if len(matching) > 1 and effect_id not in matching:
        raise EffectDecisionError(
            f"{len(matching)} effects of run {run_id} begin with {effect_id}.", hint="Give more of the id."
        )
    full = matching[0] if len(matching) == 1 else effect_id
    outcome = ledger.outcomes.get(full)
    resolved = EffectResolved(
        run_id=run_id,
        effect_id=full,
        decision=decision,
        result=to_json(result, "result"),
        reason=reason,
        resolved_by=resolved_by,
        outcome_id=outcome.event_id if outcome is not None else None,
    )
    refused = refusal(ledger, resolved.payload())
    if refused is not None:
        raise EffectDecisionError(
            f"Run {run_id}: {refused.reason}.", hint=f"`noesium effects {run_id}` lists those that wait."
        )
    return resolved
