"""What a worker promises beside exactly once, as rules over a log that is at rest; see `invariants`.

Times are compared where one clock gave both: an owner's events with what that owner judged by its clock, the
log's append times with one another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import ANSWERS, COMMANDS
from noesium_stream.log.headers import CE_ID, COMMIT, INBOX, SOURCE
from noesium_stream.log.record import Record
from noesium_stream.worker.runs.slots import fairness_key
from tests.support.book import TERMINAL, Book, at, outcome_of, source_of

ENTERED: Final = "kernel.node.entered"
CANCEL: Final = "run.cancel.requested"
ENDING: Final = (CANCEL, "run.compensation.started", "run.deadline.passed")

_OF_EFFECTS: Final = (
    "effect.requested",
    "effect.completed",
    "effect.failed",
    "effect.outcome.unknown",
    "effect.reported",
    "effect.resolved",
)

STEPS: Final = 3
"""So many steps begin without a look at the clock or the inbox only where nobody looks."""

LATE_MS: Final = 60_000
"""A process may stand still; a run that goes on for so long was not ended."""

UNHEARD_MS: Final = 20_000
"""What comes in reaches a run that goes on within this time."""


def broken_promises(book: Book, spoiled: Collection[str] = ()) -> list[str]:
    """What does not hold, one line each; `spoiled` are the events that have to become dead letters."""
    faults: list[str] = []
    for run_id, events in book.runs.items():
        faults += wrong_deadline(book, run_id, events)
        faults += wrong_timers(book, run_id, events)
        faults += wrong_cancel(book, run_id, events)
        faults += went_on_parked(run_id, events)
    for kind, journal in book.journals.items():
        faults += unheard_cancels(book, book.inboxes[kind], journal)
        faults += ignored_reports(book, book.inboxes[kind], journal)
        faults += resumed_twice(book, journal)
        faults += out_of_turn(journal)
    faults += wrong_letters(book, spoiled)
    return faults


# -- time ----------------------------------------------------------------------------------------------


def wrong_deadline(book: Book, run_id: str, events: Sequence[EventEnvelope]) -> Iterator[str]:
    """Deadlines that passed early, twice, or without the run ending for it, and those that were not seen."""
    started = next((event for event in events if event.event_type == "run.started"), None)
    if started is None:
        return
    due_ms, end = started.payload.get("deadline_ms"), outcome_of(book, run_id)
    command = next((event for event in events if event.event_type in COMMANDS), None)
    if command is not None and command.payload.get("deadline_ms") != due_ms:
        yield f"deadline: run {run_id} has another one than its command"
    caller = started.payload.get("reply_to")
    calling = book.runs.get(caller["run_id"], ()) if caller else ()
    if calling and _handed_on(calling, caller["call_id"]) != due_ms:
        yield f"deadline: run {run_id} has another one than its caller and its call"
    passed = [event for event in events if event.event_type == "run.deadline.passed"]
    exceeded = end is not None and end.payload.get("error_type") == "DeadlineExceededError"
    if len(passed) > 1:
        yield f"deadline: it is said {len(passed)} times that the one of run {run_id} has passed"
    for event in passed:
        if due_ms is None or event.payload["deadline_ms"] != due_ms:
            yield f"deadline: run {run_id} has none such as has passed"
        elif event.timestamp_ms < due_ms:
            yield f"deadline: the one of run {run_id} passed {due_ms - event.timestamp_ms} ms too early"
    if end is not None and bool(passed) != exceeded:
        yield f"deadline: run {run_id} ended as {end.event_type}, and its deadline passed {len(passed)} times"
    if due_ms is not None and not _ending(events, run_id):
        late = [event for event in events if event.timestamp_ms > due_ms]
        steps = sum(event.event_type == ENTERED for event in late)
        if steps >= STEPS or any(event.timestamp_ms > due_ms + LATE_MS for event in late):
            yield f"deadline: run {run_id} went on after it, for {steps} steps"


def _handed_on(caller: Sequence[EventEnvelope], call_id: str) -> int | None:
    """The earlier one of the deadlines of a calling run and of its call."""
    dues = [
        event.payload.get("deadline_ms")
        for event in caller
        if event.event_type == "run.started"
        or (event.event_type == "capability.requested" and event.payload["call_id"] == call_id)
    ]
    return min((due for due in dues if due is not None), default=None)


def wrong_timers(book: Book, run_id: str, events: Sequence[EventEnvelope]) -> Iterator[str]:
    """Timers that fired early, twice or never, and questions that expired early."""
    started = {e.payload["timer_id"]: e.payload["due_ms"] for e in events if e.event_type == "timer.started"}
    fired = Counter(event.payload["timer_id"] for event in events if event.event_type == "timer.fired")
    for timer_id, count in fired.items():
        if count > 1 or timer_id not in started:
            yield f"timer: {timer_id} of run {run_id} fired {count} times"
    for event in events:
        if event.event_type == "timer.fired":
            due_ms = started.get(event.payload["timer_id"], event.payload["due_ms"])
        elif event.event_type == "approval.expired":
            due_ms = event.payload["deadline_ms"]
        else:
            continue
        if event.timestamp_ms < due_ms:
            yield f"timer: {event.event_type} of run {run_id} came {due_ms - event.timestamp_ms} ms too early"
    end = outcome_of(book, run_id)
    if end is not None and end.event_type == "run.completed" and started.keys() - fired.keys():
        yield f"timer: run {run_id} completed, and {sorted(started.keys() - fired.keys())} never fired"


# -- who does not want a run ---------------------------------------------------------------------------


def wrong_cancel(book: Book, run_id: str, events: Sequence[EventEnvelope]) -> Iterator[str]:
    """Runs that accepted to be cancelled and ended otherwise, or twice, or left their calls alone."""
    asked = [event for event in events if event.event_type == CANCEL and event.payload["run_id"] == run_id]
    end = outcome_of(book, run_id)
    if len(asked) > 1:
        yield f"cancel: run {run_id} accepted it {len(asked)} times"
    if end is None:
        return
    if asked and end.event_type != "run.cancelled":
        yield f"cancel: run {run_id} accepted to be cancelled, and ended as {end.event_type}"
    answered = {event.payload["call_id"] for event in events if event.event_type in ANSWERS}
    told = {record.key for inbox in book.inboxes.values() for record in inbox if record.event_type == CANCEL}
    for event in events:
        call_id = event.payload.get("run_id")
        is_call = event.event_type in COMMANDS and call_id != run_id
        if is_call and call_id not in answered and call_id not in told:
            yield f"cancel: run {run_id} has ended ({end.event_type}), and its call {call_id} was not told"


def unheard_cancels(book: Book, inbox: Sequence[Record], journal: Sequence[Record]) -> Iterator[str]:
    """Requests to cancel that no owner took while their run went on."""
    accepted = {record.header(SOURCE) for record in journal}
    steps: defaultdict[str, list[int]] = defaultdict(list)
    for record in journal:
        if record.event_type == ENTERED:
            steps[record.key].append(record.timestamp_ms)
    for record in inbox:
        if record.event_type != CANCEL or source_of(record) in accepted:
            continue
        late = [ms for ms in steps[record.key] if ms > record.timestamp_ms + UNHEARD_MS]
        if len(late) >= STEPS and not _ending(book.runs.get(record.key, ()), record.key):
            yield f"cancel: {at(record)} was passed over, and run {record.key} went on for {len(late)} steps"


def _ending(events: Sequence[EventEnvelope], run_id: str) -> bool:
    """Whether something ends the run before it is done."""
    return any(event.event_type in ENDING and event.payload["run_id"] == run_id for event in events)


# -- calls that outlive their owner --------------------------------------------------------------------


_UNKNOWN: Final = {"effect.requested", "effect.outcome.unknown", "effect.resolved"}


def ignored_reports(book: Book, inbox: Sequence[Record], journal: Sequence[Record]) -> Iterator[str]:
    """What a call said at last that nobody took, though a person's decision that came in later was taken."""
    accepted = {record.header(SOURCE) for record in journal}
    decided: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for record in inbox:
        if record.event_type == "effect.resolved" and source_of(record) in accepted:
            place = record.partition, record.envelope.payload["effect_id"]
            decided[place].append(record.offset)
    for record in inbox:
        if record.event_type != "effect.reported" or source_of(record) in accepted:
            continue
        effect_id = record.envelope.payload["effect_id"]
        if max(decided[record.partition, effect_id], default=-1) < record.offset:
            continue
        about = [
            event
            for event in book.runs.get(record.key, ())
            if event.event_type in _OF_EFFECTS and event.payload["effect_id"] == effect_id
        ]
        unknown = {event.event_type for event in about} <= _UNKNOWN
        intents = [event.event_id for event in about if event.event_type == "effect.requested"]
        if unknown and intents == [record.envelope.payload["intent_id"]]:
            yield f"report: {at(record)} of run {record.key} about {effect_id} was ignored"


# -- versions ------------------------------------------------------------------------------------------


def went_on_parked(run_id: str, events: Sequence[EventEnvelope]) -> Iterator[str]:
    """Steps of a run that waits for a worker of its version."""
    parked: str | None = None
    for event in events:
        if event.event_type == "run.parked":
            if parked == event.payload["reason"]:
                yield f"parked: run {run_id} says so twice: {parked}"
            parked = event.payload["reason"]
        elif event.event_type in ("run.resumed", "run.migrated"):
            if parked is None:
                yield f"parked: run {run_id} is said to go on, and was not parked"
            parked = None
        elif event.event_type == ENTERED and parked is not None:
            yield f"parked: run {run_id} went on while it waited: {parked}"


def resumed_twice(book: Book, journal: Sequence[Record]) -> Iterator[str]:
    """Requests that were parked and dealt with more than once, or never though their run has ended."""
    dealt: Counter[tuple[int, int]] = Counter()
    for record in journal:
        if record.event_type == "request.resumed":
            dealt.update((record.partition, offset) for offset in record.envelope.payload["offsets"])
    for record in journal:
        if record.event_type != "request.parked":
            continue
        count, run_id = dealt[record.partition, record.offset], record.envelope.payload["run_id"]
        if count > 1:
            yield f"parked: {at(record)} of run {run_id} was dealt with {count} times"
        if count == 0 and outcome_of(book, run_id) is None:
            yield f"parked: {at(record)} of run {run_id} still waits"


# -- turns ---------------------------------------------------------------------------------------------


class Begun(NamedTuple):
    """A command that began.

    Attributes:
        fair: whose it was.
        offset: where it lay in the inbox.
        owner: how many owners the partition had had.
        open: who had open runs.
        in_turn: whether it was its turn; else it began beside others.
    """

    fair: str
    offset: int
    owner: int
    open: frozenset[str]
    in_turn: bool = False


def out_of_turn(journal: Sequence[Record]) -> Iterator[str]:
    """Commands that began before an older one of their tenant, or in a turn that was another tenant's.

    Where requests were parked or handed on, commands begin out of turn by right.
    """
    exempt = {
        record.partition
        for record in journal
        if record.event_type in ("request.parked", "partition.outgrown", "request.forwarded")
    }
    for partition in sorted({record.partition for record in journal} - exempt):
        for fault in _turns(_begun([record for record in journal if record.partition == partition])):
            yield f"turn: partition {partition}: {fault}"


def _begun(journal: Sequence[Record]) -> list[Begun]:
    """The commands that began in a partition; the last of those that were taken up together is marked."""
    begun: list[Begun] = []
    keys: dict[str, str] = {}
    open_runs = Counter[str]()
    owner = marked = 0
    for record in journal:
        source, mark = record.header(SOURCE), record.header(INBOX)
        if record.event_type == "partition.acquired":
            owner += 1
        elif source is not None and record.event_type in COMMANDS:
            fair = keys[record.key] = fairness_key(record.envelope)
            offset = int(source.rpartition(b"/")[2])
            begun.append(Begun(fair, offset, owner, frozenset(+open_runs)))
            open_runs[fair] += 1
        elif record.event_type in TERMINAL and record.key in keys:
            open_runs[keys.pop(record.key)] -= 1
        if mark is not None:
            begun[marked:] = [one._replace(in_turn=b'"fair"' in mark) for one in begun[marked:]]
            marked = len(begun)
    return begun


def _turns(begun: Sequence[Begun]) -> Iterator[str]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(begun):
        own = places[one.fair]
        if own and begun[own[-1]].offset > one.offset:
            yield f"command {one.offset} of {one.fair} began after command {begun[own[-1]].offset}"
        own.append(place)
    for fair, own in places.items():
        in_turn = [place for place in own if begun[place].in_turn]
        beside = [place for place in own if not begun[place].in_turn]
        for first, last in pairwise(in_turn):
            yield from _overtaken(begun, first, last, f"two of {fair} began in turn")
        for first, last in pairwise(beside):
            if begun[first].owner == begun[last].owner:  # a new one begins with anybody
                # Who has a run at work waits for a slot.
                at_work = frozenset[str]().union(*(one.open for one in begun[first : last + 1]))
                yield from _overtaken(begun, first, last, f"two of {fair} began beside others", at_work)


def _overtaken(
    begun: Sequence[Begun], first: int, last: int, what: str, apart: Collection[str] = ()
) -> Iterator[str]:
    between = {one.fair for one in begun[first:last]}
    for one in begun[last:]:
        if one.fair not in between and one.fair not in apart and one.offset < begun[first].offset:
            yield f"command {one.offset} of {one.fair} waited while {what}"


# -- dead letters --------------------------------------------------------------------------------------


def wrong_letters(book: Book, spoiled: Collection[str]) -> Iterator[str]:
    """Letters of sound records, spoiled records without a letter, and letters that were sent again twice."""
    refused = book.refused()
    inboxes = [record for inbox in book.inboxes.values() for record in inbox]
    by_place = {source_of(record): record for record in inboxes}
    accepted = {record.header(SOURCE) for journal in book.journals.values() for record in journal}
    begun: Mapping[str, Sequence[EventEnvelope]] = book.runs
    for place, letters in refused.items():
        reason = letters[0].envelope.payload["failure_reason"]
        found = by_place.get(place)
        # To call again was decided when the run was not ending yet: that is another one's to say anew.
        overtaken = "payload: the run is ending, and the effect" in reason
        if (found is None or _id(found) not in spoiled) and not overtaken:
            yield f"letter: {place.decode()}: {reason}"
        if len(letters) > 1:
            yield f"letter: {place.decode()} is a dead letter {len(letters)} times"
    for record in inboxes:
        known = source_of(record) in refused or source_of(record) in accepted or record.key in begun
        if _id(record) in spoiled and not known:
            yield f"letter: {at(record)} is spoiled, and nobody says so"
    again: Counter[bytes] = Counter()
    for letter in book.letters:
        if letter.event_type != "system.dead_letter.redriven":
            continue
        payload = letter.envelope.payload
        place = f"{payload['topic']}/{payload['partition']}/{payload['offset']}".encode()
        again[place] += 1
        sent = [r for r in inboxes if _commit(r) == _commit(letter)]
        if place not in refused or len(sent) != 1 or _id(sent[0]) != _id(by_place[place]):
            yield f"letter: {place.decode()} is said to be sent again, and {len(sent)} records were"
    for place, count in again.items():
        if count > 1:
            yield f"letter: {place.decode()} was sent again {count} times"


def _id(record: Record) -> str:
    return (record.header(CE_ID) or b"").decode()


def _commit(record: Record) -> bytes | None:
    commit = record.header(COMMIT)
    return None if commit is None else commit.rsplit(b":", 2)[0]
