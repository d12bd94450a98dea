"""What has to hold of a log and of the outside after any mishap: judged from the log and a ledger alone.

    book = await read_book(log, ["caller", "carrier"])
    faults = broken(book, asked, ledger)      # texts, one per fault; none: all holds

`log` is any `EventLog`; who calls it has waited until nothing is under way any more. `asked` are the commands
that were accepted (their append was acknowledged), `ledger` the calls that reached the outside.

The rules, by the word that a fault begins with:

- lost, doubled: each command that was accepted has one run, which began once and has one outcome.
- gap, repeated: the records of a run are numbered 0, 1, 2… in the order of the journal; nothing follows the
  outcome; no event, no idempotency key and no copy of an inbox record stands there twice.
- torn: of each commit all records are there, in every partition that it went to.
- fenced, epoch: nothing of a writer follows the first record of the next one in a journal partition, and
  epochs grow.
- passed over: what came in for a run was accepted if something later of the inbox was.
- answer: a call and a question have one answer, and a call's answer is what its run gave; a call that was
  given up at its deadline has none.
- effect: nothing is called without an intent on the log; an external effect is called once per idempotency
  key, and once more for each time that a person said `retry`; what the log says of it is what happened.
- undone: what was done and can be undone was undone once where its run did not complete.
- deadline: one that passes does so once, not before its time, and its run ends for it; a run does not go on
  after its own, and what it asks of others has the same.
- timer: each fires once, not before its time, and before its run completes.
- cancel: who accepts to be cancelled ends as that, once; what a run that has ended had asked of others, and
  what they have not answered, is cancelled too; a run does not go on while a request lies in its inbox.
- report: what a call said at last, whose owner had given the run up, is heard before a later decision.
- parked: a run does nothing while it waits for a worker of its version; a request that waits for one is dealt
  with once.
- turn: of one tenant's commands the older one begins first, and no tenant's waits while two of another begin
  in turn, or two beside others where the tenant has no run at work.
- letter: nothing but what was spoiled on its way (`spoiled`, by event ids) became a dead letter, that did,
  and a letter is sent again once at most.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import ANSWERS, COMMANDS, output_of
from noesium_stream.event.rules.run_life import ENDINGS as TERMINAL
from noesium_stream.log.headers import COMMIT, ORIGIN, SEQUENCE, SOURCE
from noesium_stream.log.record import Record
from tests.support.book import Asked, Book, Call, at, outcome_of, read_book, read_topic, source_of
from tests.support.promises import broken_promises

__all__ = [
    "TERMINAL",
    "Asked",
    "Book",
    "Call",
    "broken",
    "fold",
    "outcome_of",
    "read_book",
    "read_topic",
    "seen_otherwise",
    "torn_commits",
]

OUTCOMES: Final = ("effect.completed", "effect.failed", "effect.outcome.unknown")


def broken(
    book: Book, asked: Collection[Asked], ledger: Sequence[Call], spoiled: Collection[str] = ()
) -> list[str]:
    """What does not hold, one line each."""
    faults: list[str] = []
    for records in book.journals.values():
        faults += broken_runs(records)
        faults += broken_copies(records)
        faults += fenced_writers(records)
    faults += torn_commits(book.all())
    faults += lost_or_doubled(book, asked)
    refused = book.refused()
    for kind, inbox in book.inboxes.items():
        inbox = [record for record in inbox if source_of(record) not in refused]
        faults += sent_twice(inbox)
        faults += passed_over(inbox, book.journals[kind], book.runs)
    faults += wrong_answers(book)
    faults += wrong_effects(book, ledger)
    faults += not_undone(book)
    faults += broken_promises(book, spoiled)
    return faults


# -- one journal ---------------------------------------------------------------------------------------


def broken_runs(journal: Sequence[Record]) -> Iterator[str]:
    """Gaps, repetitions and what follows an outcome, run by run."""
    numbers: Counter[str] = Counter()
    ended: set[str] = set()
    ids: set[tuple[str, str]] = set()
    keys: set[tuple[str, str, str]] = set()
    for record in journal:
        number = record.header(SEQUENCE)
        if number is None:
            continue
        run_id, event = record.key, record.envelope
        where = f"{at(record)} run {run_id} {event.event_type}"
        if int(number) != numbers[run_id]:
            word = "gap" if int(number) > numbers[run_id] else "repeated"
            yield f"{word}: {where} has the number {int(number)}, due is {numbers[run_id]}"
        numbers[run_id] = int(number) + 1
        if run_id in ended:
            yield f"repeated: {where} follows the run's outcome"
        if event.event_type in TERMINAL:
            ended.add(run_id)
        if (run_id, event.event_id) in ids:
            yield f"repeated: {where} stands there twice by its id"
        ids.add((run_id, event.event_id))
        key = (run_id, event.event_type, event.idempotency_key or event.event_id)
        if key in keys:
            yield f"repeated: {where} stands there twice by its idempotency key"
        keys.add(key)


def broken_copies(journal: Sequence[Record]) -> Iterator[str]:
    """Copies of the same inbox record, and copies of one run's that are out of order.

    Between runs the order is that of turns, not that of the inbox.
    """
    taken: set[tuple[int, str, int]] = set()
    last: dict[tuple[str, str], int] = {}
    for record in journal:
        source = record.header(SOURCE)
        if source is None:
            continue
        place, _, text = source.decode().rpartition("/")
        run_id = record.key
        if record.event_type == "request.forwarded":
            run_id = record.envelope.payload["run_id"]
        offset, before = int(text), last.get((run_id, place), -1)
        if (record.partition, place, offset) in taken:
            yield f"repeated: {at(record)} is a second copy of {place}/{offset}"
        elif offset < before:
            yield f"repeated: {at(record)} is a copy of {place}/{offset}, after one of offset {before}"
        taken.add((record.partition, place, offset))
        last[run_id, place] = max(offset, before)


def fenced_writers(journal: Sequence[Record]) -> Iterator[str]:
    """Records of a writer behind the first of a later one; epochs that do not grow."""
    writers: dict[int, list[str]] = defaultdict(list)
    epochs: dict[int, int] = {}
    for record in journal:
        commit = record.header(COMMIT)
        if commit is None:
            continue
        writer = commit.decode().rpartition("-")[0]
        known = writers[record.partition]
        if not known or known[-1] != writer:
            if writer in known:
                yield f"fenced: {at(record)} is of a writer that others have followed"
            elif record.event_type != "partition.acquired":
                yield f"fenced: {at(record)} is the first of its writer, and is {record.event_type}"
            known.append(writer)
        if record.event_type == "partition.acquired":
            epoch = record.envelope.payload["epoch"]
            if epoch <= epochs.get(record.partition, -1):
                yield f"epoch: {at(record)} has the epoch {epoch} after {epochs[record.partition]}"
            epochs[record.partition] = epoch


def torn_commits(records: Iterable[Record]) -> Iterator[str]:
    """Commits of which a partition has not all records."""
    found: dict[tuple[str, str, int], tuple[int, list[int]]] = {}
    for record in records:
        commit = record.header(COMMIT)
        if commit is not None:
            name, index, count = commit.decode().rsplit(":", 2)
            place = (name, record.topic, record.partition)
            found.setdefault(place, (int(count), []))[1].append(int(index))
    for (name, topic, partition), (count, indexes) in found.items():
        if sorted(indexes) != list(range(count)):
            yield f"torn: commit {name} has {sorted(indexes)} of {count} records in {topic}/{partition}"


# -- runs ----------------------------------------------------------------------------------------------


def lost_or_doubled(book: Book, asked: Collection[Asked]) -> Iterator[str]:
    """Commands without a run or an outcome, with two of them, or with a wrong result."""
    commands = {one.run_id: one.agent_type for one in asked}
    refused = book.refused()
    for kind, inbox in book.inboxes.items():
        sound = (record for record in inbox if source_of(record) not in refused)
        commands.update({r.key: kind for r in sound if r.event_type in COMMANDS})
    for run_id in commands:
        if run_id not in book.runs:
            yield f"lost: the command of run {run_id} was accepted, and nobody has begun it"
    for run_id, events in book.runs.items():
        types = Counter(event.event_type for event in events)
        if types["run.started"] != 1:
            yield f"doubled: run {run_id} began {types['run.started']} times"
        ends = [event for event in events if event.event_type in TERMINAL]
        if not ends:
            last = ", ".join(event.event_type for event in events[-3:])
            yield f"lost: run {run_id} has no outcome; its last records: {last}"
        if len(ends) > 1:
            yield f"doubled: run {run_id} has {len(ends)} outcomes"
    for one in asked:
        end = outcome_of(book, one.run_id)
        if end is None or end.event_type != "run.completed" or one.any_of is None:
            continue
        if end.payload["result"] not in one.any_of:
            yield f"doubled: run {one.run_id} gave {end.payload['result']}, not {one.any_of}"


# -- what goes between runs ----------------------------------------------------------------------------


def sent_twice(inbox: Sequence[Record]) -> Iterator[str]:
    """What agents' runs sent, and stands in an inbox twice."""
    seen: set[str] = set()
    for record in inbox:
        if record.header(ORIGIN) is None:
            continue
        event = record.envelope
        for name in {event.event_id, f"{event.event_type} {event.idempotency_key or event.event_id}"}:
            if name in seen:
                yield f"doubled: {at(record)} {event.event_type} was sent twice: {name}"
            seen.add(name)


def passed_over(
    inbox: Sequence[Record], journal: Sequence[Record], runs: Mapping[str, Sequence[EventEnvelope]]
) -> Iterator[str]:
    """What came in for an open run and was not accepted, though something later was."""
    accepted = {record.header(SOURCE) for record in journal}
    open_until: dict[str, int] = {}
    for record in inbox:
        if source_of(record) in accepted:
            open_until[record.key] = record.offset
    for record in inbox:
        if source_of(record) in accepted or record.offset > open_until.get(record.key, -1):
            continue
        event = record.envelope
        if event.event_type in COMMANDS or _dealt_with(event, runs.get(record.key, ())):
            continue
        yield f"passed over: {at(record)} {event.event_type} of run {record.key}"


def _dealt_with(event: EventEnvelope, run: Sequence[EventEnvelope]) -> bool:
    """Whether another one of the kind was accepted, of which one is enough."""
    name = next((name for name in ("call_id", "approval_id", "outcome_id") if name in event.payload), None)
    alike = [other for other in run if other.event_type == event.event_type]
    if event.event_type == "run.cancel.requested":
        # Not for a run that is ending already.
        ending = ("run.compensation.started", "run.deadline.passed")
        return bool(alike) or any(other.event_type in ending for other in run)
    if event.event_type in ANSWERS:
        alike = [other for other in run if other.event_type in (event.event_type, "capability.expired")]
    if event.event_type == "approval.answered":
        alike = [other for other in run if other.event_type in (event.event_type, "approval.expired")]
    if event.event_type == "effect.resolved":
        # Late: the call itself said at last what came of it.
        told = ("effect.resolved", "effect.reported", *OUTCOMES)
        effect_id = event.payload["effect_id"]
        return sum(other.event_type in told and other.payload["effect_id"] == effect_id for other in run) > 1
    if event.event_type == "effect.reported":
        # Late: it was said otherwise what came of the call, or it was made again.
        about = [other for other in run if other.payload.get("effect_id") == event.payload["effect_id"]]
        told = ("effect.reported", "effect.resolved", "effect.completed", "effect.failed")
        intents = [other.event_id for other in about if other.event_type == "effect.requested"]
        # The commit of its intent may have been lost, and another owner has announced a call of its own.
        return any(other.event_type in told for other in about) or intents != [event.payload["intent_id"]]
    return name is not None and any(other.payload[name] == event.payload[name] for other in alike)


def wrong_answers(book: Book) -> Iterator[str]:
    """Calls and questions with more than one answer; answers that no run gave."""
    for run_id, events in book.runs.items():
        calls = [e.payload["call_id"] for e in events if e.event_type in ANSWERS and _is_for(e, run_id)]
        asked = [e.payload["approval_id"] for e in events if e.event_type.startswith("approval.")]
        expired = {e.payload["call_id"] for e in events if e.event_type == "capability.expired"}
        for call_id, count in Counter(calls).items():
            if count > 1:
                yield f"answer: run {run_id} has {count} answers to the call {call_id}"
            if call_id in expired:
                yield f"answer: run {run_id} has an answer to the call {call_id}, and no answer in time"
        for approval_id, count in Counter(asked).items():
            if count > 2:
                yield f"answer: run {run_id} has {count - 1} answers to the question {approval_id}"
        for event in events:
            if event.event_type == "capability.completed" and _is_for(event, run_id):
                yield from _wrong_answer(book, run_id, event)


def _is_for(answer: EventEnvelope, run_id: str) -> bool:
    return bool(answer.payload.get("caller_run_id") == run_id)


def _wrong_answer(book: Book, run_id: str, answer: EventEnvelope) -> Iterator[str]:
    end = outcome_of(book, answer.payload["call_id"])
    if end is None:
        yield f"answer: run {run_id} was answered by {answer.payload['call_id']}, which has not ended"
    elif (end.event_type == "run.completed") != (answer.payload.get("error") is None):
        yield f"answer: run {run_id} was told that {answer.payload['call_id']} ended otherwise than it did"
    elif end.event_type == "run.completed" and output_of(answer.payload) != end.payload["result"]:
        yield f"answer: run {run_id} was given another result than that of {answer.payload['call_id']}"


# -- the outside ---------------------------------------------------------------------------------------


def wrong_effects(book: Book, ledger: Sequence[Call]) -> Iterator[str]:
    """Where the ledger and the log differ, and calls that were made too often."""
    events = [event for run in book.runs.values() for event in run]
    intents = {e.payload["idempotency_key"]: e for e in events if e.event_type == "effect.requested"}
    told: defaultdict[str, list[EventEnvelope]] = defaultdict(list)
    again: Counter[str] = Counter()
    for event in events:
        if event.event_type in OUTCOMES:
            told[event.payload["effect_id"]].append(event)
        elif event.event_type == "effect.resolved" and event.payload["decision"] == "retry":
            again[event.payload["effect_id"]] += 1
    by_key: defaultdict[str, list[Call]] = defaultdict(list)
    for call in ledger:
        by_key[call.key].append(call)
    for key, calls in by_key.items():
        if key not in intents:
            yield f"effect: {calls[0].kind} {calls[0].words} ({key}) was called without an intent"
            continue
        effect_class = intents[key].payload["effect_class"]
        most = 1 + again[key]
        if effect_class == "external" and len(calls) > most:
            who = ", ".join(f"{call.process} at {call.begun_s:.3f}" for call in calls)
            yield f"effect: {calls[0].words} ({key}) was called {len(calls)} times, not {most}: by {who}"
    for key, intent in intents.items():
        run_id, name = intent.payload["run_id"], f"{intent.payload['name']} ({key})"
        left = outcome_of(book, run_id) is not None and not told[key]
        if left and intent.payload["effect_class"] != "pure":
            yield f"effect: run {run_id} has ended, and nothing is said of {name}"
        for event in told[key]:
            # What is safe to repeat is called again while a paused owner's call runs: either is told.
            repeated = len(by_key[key]) > 1 and intent.payload["effect_class"] != "external"
            yield from _untrue(name, event, by_key[key], repeated=repeated)


def _untrue(name: str, event: EventEnvelope, calls: Sequence[Call], *, repeated: bool) -> Iterator[str]:
    done = [call for call in calls if call.outcome == "done"]
    if event.event_type == "effect.completed" and not done:
        yield f"effect: {name} is said to be done, and was not"
    given = event.payload.get("result")
    if event.event_type == "effect.completed" and given not in (None, *(call.result for call in done)):
        yield f"effect: {name} is said to have given {given}"
    late = repeated or event.payload.get("error_type") in ("TimeoutError", "ToolTimeoutError")
    if event.event_type == "effect.failed" and done and not late:
        yield f"effect: {name} is said to have failed ({event.payload['message']}), and was done"


def not_undone(book: Book) -> Iterator[str]:
    """What was done and can be undone, in runs that did not complete."""
    for run_id, events in book.runs.items():
        end = outcome_of(book, run_id)
        if end is None:
            continue
        settled = {
            event.payload["effect_id"]
            for event in events
            if event.event_type == "effect.completed"
            or (event.event_type == "effect.resolved" and event.payload["decision"] == "result")
        }
        given_up = {
            event.payload["effect_id"]
            for event in events
            if event.event_type == "effect.resolved" and event.payload["decision"] == "fail"
        }
        intents = {e.payload["effect_id"]: e for e in events if e.event_type == "effect.requested"}
        for effect_id, intent in intents.items():
            if intent.payload["compensation"] is None or effect_id not in settled:
                continue
            undoing = {key for key, e in intents.items() if e.payload["compensates"] == effect_id}
            done = undoing & settled
            if end.event_type == "run.completed" and undoing:
                yield f"undone: {effect_id} of run {run_id} was undone, and the run completed"
            if end.event_type != "run.completed" and not done and not undoing & given_up:
                yield f"undone: {effect_id} of run {run_id} was not undone"
            if len(done) > 1:
                yield f"undone: {effect_id} of run {run_id} was undone {len(done)} times"


# -- readers -------------------------------------------------------------------------------------------

Folded = dict[str, tuple[int, str]]
"""By journal and run: how many of its records were folded, and the ids of all of them in one digest."""


def fold(state: Folded, record: Record) -> Folded:
    """The state with one record more; the same records in the same order give the same state."""
    key = f"{record.topic}/{record.partition}/{record.key}"
    count, digest = state.get(key, (0, ""))
    event = record.envelope
    text = f"{digest}/{event.event_id}/{event.event_type}/{record.offset}"
    state[key] = count + 1, hashlib.sha256(text.encode()).hexdigest()
    return state


def seen_otherwise(seen: Sequence[Record], there: Sequence[Record]) -> Iterator[str]:
    """What a live reader was given, compared with what is on the log (of the same partitions)."""
    final = {(r.topic, r.partition, r.offset): r.envelope.event_id for r in there}
    given: dict[tuple[str, int, int], str] = {}
    last: dict[tuple[str, int], int] = {}
    for record in seen:
        place = (record.topic, record.partition, record.offset)
        given[place] = record.envelope.event_id
        if final.get(place) != record.envelope.event_id:
            yield f"aborted: a reader was given {at(record)} {record.event_type}, which was never committed"
        if record.offset <= last.get(place[:2], -1):
            yield f"repeated: a reader was given {at(record)} after offset {last[place[:2]]}"
        last[place[:2]] = record.offset
    for place in final.keys() - given.keys():
        yield f"passed over: a reader was not given {place}"
