"""What has to hold of the tool calls of a simulated world: judged from the log and the ledger.

The rules, by the word that a fault begins with:

- tool: an invoked call was invoked once, and has one end; `tool.timeout` may come before it, once. What it is
  called with is what was approved; a call that was denied was not invoked, and reached nothing.
- approval: a question that was answered with yes is consumed by one call at most, and its yes is on the log;
  who asks people calls nothing external without one.
- verify: a replay of the run has no difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog
from tests.sim.cast import DENIED
from tests.sim.tool_cast import TOOLER, TOOLERS, FreeTooler, Tooler
from tests.support.invariants import Book, Call, outcome_of

_ENDS = ("tool.completed", "tool.failed")


def wrong_tool_calls(book: Book, calls: Iterable[Call], kinds: Sequence[str] = TOOLERS) -> Iterator[str]:
    """Calls with no end or several, that nobody has allowed, or that are not what was allowed."""
    ledger: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls:
        ledger[call.key].append(call)
    for kind in kinds:
        for run_id in dict.fromkeys(record.key for record in book.journals.get(kind, ())):
            events = book.runs.get(run_id, ())
            for fault in _wrong_in_run(kind, events, ledger, ended=outcome_of(book, run_id)):
                yield f"{fault}, in run {run_id}"


def _wrong_in_run(
    kind: str,
    events: Sequence[EventEnvelope],
    ledger: Mapping[str, Sequence[Call]],
    *,
    ended: EventEnvelope | None,
) -> Iterator[str]:
    by_type: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    by_call: defaultdict[str, list[str]] = defaultdict(list)
    for event in events:
        by_type[event.event_type].append(event.payload)
        if event.event_type.startswith("tool."):
            by_call[event.payload["call_id"]].append(event.event_type)
    for call_id, told in by_call.items():
        yield from _wrong_order(call_id, told, over=ended is not None)
        if "tool.denied" in told and ledger.get(call_id):
            yield f"tool: the call {call_id} was denied, and made"
    for invoked in by_type["tool.invoked"]:
        for call in ledger.get(invoked["call_id"], ()):
            if call.words != invoked["input"]["words"]:
                yield f"tool: {invoked['call_id']} is said to be about {invoked['input']}, not {call.words}"
    yield from _wrong_approvals(kind, by_type)
    # The other agents get such texts from effects as well, which are no tools.
    if kind in TOOLERS and ended is not None and ended.event_type == "run.completed":
        yield from _wrong_results(by_type, ended.payload["result"]["got"])


def _wrong_order(call_id: str, told: Sequence[str], *, over: bool) -> Iterator[str]:
    counts = Counter(told)
    ends = sum(counts[one] for one in _ENDS)
    invoked = "tool.invoked" in told
    if told[0] not in ("tool.invoked", "tool.denied"):
        yield f"tool: {call_id} begins with {told[0]}"
    if any(count > 1 for count in counts.values()) or ends > 1 or (not invoked and told != ["tool.denied"]):
        yield f"tool: {call_id} is told of as {', '.join(told)}"
    elif ends and told[-1] not in _ENDS:
        yield f"tool: after the end of {call_id} comes {told[-1]}"
    if over and invoked and len(told) == 1:
        yield f"tool: {call_id} was invoked, and has no end"


def _wrong_approvals(kind: str, by_type: Mapping[str, Sequence[dict[str, Any]]]) -> Iterator[str]:
    answers: dict[str, dict[str, Any]] = {}
    for answer in by_type["approval.answered"]:
        answers.setdefault(answer["approval_id"], answer)
    invoked = by_type["tool.invoked"]
    consumed = Counter(call["approval_id"] for call in invoked if call.get("approval_id"))
    always: set[str] = set()
    for call in invoked:
        approval_id = call.get("approval_id")
        if approval_id is None:
            if (
                kind == TOOLER
                and call["side_effect_class"] == "external"
                and call["arguments_hash"] not in always
            ):
                yield f"approval: {call['call_id']} was called, and nobody was asked"
            continue
        answer = answers.get(approval_id)
        if answer is None or not answer["approved"]:
            yield f"approval: {call['call_id']} was called without a yes"
            continue
        said = answer.get("value") or {}
        if "arguments" in said and call["input"] != said["arguments"]:
            yield f"approval: {call['call_id']} was called with {call['input']}, not {said['arguments']}"
        if said.get("always"):
            always.add(call["arguments_hash"])
    for approval_id, count in consumed.items():
        if count > 1:
            yield f"approval: {count} calls have consumed {approval_id}"


def _wrong_results(by_type: Mapping[str, Sequence[dict[str, Any]]], got: Any) -> Iterator[str]:
    found = Counter(_texts(got))
    if found[DENIED] != len(by_type["tool.denied"]):
        yield f"tool: {found[DENIED]} calls gave a refusal, and {len(by_type['tool.denied'])} were denied"
    outputs = {call["output"] for call in by_type["tool.completed"]}
    for text in found:
        if text.startswith(("pure ", "idempotent ", "external ")) and text not in outputs:
            yield f"tool: {text} was given, and no call has ended with it"


def _texts(got: Any) -> Iterator[str]:
    if isinstance(got, list):
        for one in got:
            yield from _texts(one)
    elif isinstance(got, str):
        yield got


async def wrong_replays(log: EventLog, book: Book, home: Path) -> list[str]:
    """Runs that call tools, and are another when they are replayed."""
    faults: list[str] = []
    client = Client(log, agent_id="auditor")
    for kind in (Tooler, FreeTooler):
        target = agent_target(kind, log, home=home)
        for run_id in dict.fromkeys(record.key for record in book.journals.get(kind.agent_type, ())):
            if not any(e.event_type == "kernel.node.completed" for e in book.runs.get(run_id, ())):
                continue
            verdict = await verify(client.run_handle(kind.agent_type, run_id), target)
            if verdict.difference is not None:
                faults.append(f"verify: run {run_id}: {verdict.difference}")
    return faults
