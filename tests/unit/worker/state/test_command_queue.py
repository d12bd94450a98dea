"""Whose turn it is among the commands that wait, and how many may begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import StateFileError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.rules.agent_calls import FAIRNESS_KEY
from noesium_stream.event.standard import CapabilityInvoked, ReplyTo, RunRequested
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.record import Record
from noesium_stream.worker.runs.slots import MAX_KEY_LENGTH, Slots, fairness_key
from noesium_stream.worker.state import command_queue as waiting
from noesium_stream.worker.state.command_queue import CommandQueue, Turn
from noesium_stream.worker.state.journal_entry import Entry
from noesium_stream.worker.state.known_runs import Bounds
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.state_file import Identity, StateFile, open_state_file

CODEC = EnvelopeCodec(standard_catalogue())
CLOCK = VirtualClock()


def command(fair: str | None = None, *, producer: str = "client", call: bool = False) -> EventEnvelope:
    run_id = CLOCK.uuid7()
    event: Any = RunRequested(run_id=run_id, agent_type="sample", input={})
    if call:
        event = CapabilityInvoked(
            run_id=run_id,
            capability_id="c",
            version="1.0.0",
            caller_agent_id="other",
            caller_run_id="parent",
            target_agent_id="sample",
            target_agent_type="sample",
            registry_offset=0,
            input={},
            reply_to=ReplyTo(agent_type="other", run_id="parent", call_id=run_id),
        )
    metadata = {"to": "sample"} | ({} if fair is None else {FAIRNESS_KEY: fair})
    return event.to_envelope(  # type: ignore[no-any-return]
        AgentRef(producer, "client"),
        TraceContext("1" * 32, "2" * 16),
        correlation_id="tree",
        partition_key=run_id,
        metadata=metadata,
        clock=CLOCK,
    )


def record(offset: int, event: EventEnvelope) -> Record:
    key = event.partition_key or ""
    return Record("inbox", 0, offset, 1_000 + offset, key, [("h", b"\xff")], CODEC.encode(event), CODEC)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StateFile]:
    file = open_state_file(tmp_path / "0.db", Identity("journal", "id", 0), print)
    yield file
    file.close()


@pytest.fixture
def queue(file: StateFile) -> CommandQueue:
    return CommandQueue(PartitionState(file, "inbox", Bounds()), "inbox", 0, CODEC)


def put(queue: CommandQueue, lanes: str) -> list[Record]:
    records = [record(offset, command(lane)) for offset, lane in enumerate(lanes)]
    for one in records:
        queue.put(one, fairness_key(one.envelope))
    return records


def lanes_of(records: Iterable[Record | Turn]) -> str:
    return "".join(one.envelope.metadata[FAIRNESS_KEY] for one in records_of(records))


def records_of(turns: Iterable[Record | Turn]) -> list[Record]:
    return [one.record if isinstance(one, Turn) else one for one in turns]


def test_one_of_each_key_in_turn_the_oldest_first(queue: CommandQueue) -> None:
    records = put(queue, "aaaabbca")
    picked, last = queue.next_ones(8)
    assert lanes_of(picked) == "abcabaaa"
    assert [turn.fair for turn in picked] == [f"key:{lane}" for lane in "abcabaaa"]
    assert [one.offset for one in records_of(picked) if lanes_of([one]) == "a"] == [0, 1, 2, 3, 7]
    assert last == "key:a"
    assert [one.headers for one in records_of(picked)] == [[("h", b"\xff")]] * 8
    assert {one.value for one in records_of(picked)} == {one.value for one in records}


def test_the_circle_goes_on_behind_the_key_that_was_last(queue: CommandQueue, file: StateFile) -> None:
    put(queue, "aabbcc")
    file.manifest.last_fair = "key:b"
    picked, last = queue.next_ones(4)
    assert lanes_of(picked) == "cabc"
    assert last == "key:c"
    file.manifest.last_fair = "key:bb"
    assert lanes_of(queue.next_ones(2)[0]) == "ca"


def test_beside_keys_that_are_at_work_each_of_the_next_others_has_its_oldest(
    queue: CommandQueue, file: StateFile
) -> None:
    put(queue, "abbcd")
    file.manifest.last_fair = "key:b"
    assert [turn.record.offset for turn in queue.next_beside({"key:c"}, 2)] == [4, 0]
    assert [turn.record.offset for turn in queue.next_beside(set(), 9)] == [3, 4, 0, 1]
    assert queue.next_beside({f"key:{lane}" for lane in "abcd"}, 1) == []


def test_those_beside_that_are_under_way_do_not_move_the_circle(queue: CommandQueue, file: StateFile) -> None:
    put(queue, "abcn")
    file.manifest.last_fair = "key:m"
    queue.take(queue.next_beside({"key:n"}, 1), None)
    assert lanes_of(queue.next_ones(1)[0]) == "n"


def test_what_is_under_way_is_not_picked_again_and_the_circle_goes_on_behind_it(
    queue: CommandQueue, file: StateFile
) -> None:
    put(queue, "aabbcc")
    file.manifest.last_fair = "key:c"
    first, last = queue.next_ones(2)
    queue.take(first, last)
    assert lanes_of(queue.next_ones(9)[0]) == "cabc"
    second = queue.next_beside({"key:c"}, 9)
    assert [turn.record.offset for turn in second] == [1, 3]
    queue.take(second, None)
    assert (lanes_of(queue.next_ones(9)[0]), queue.idle) == ("cc", False)
    rest, last = queue.next_ones(9)
    queue.take(rest, last)
    assert queue.idle
    for record in records_of([*first, *second]):
        queue.drop(record.offset)
    queue.taken(first)
    queue.taken(second)
    assert (queue.next_ones(9)[0], queue.next_beside(set(), 9), queue.idle) == ([], [], True)
    [late] = put(queue, "b")  # a key that has come back
    assert [turn.record.value for turn in queue.next_ones(9)[0]] == [late.value]


def test_many_commands_of_few_keys_are_picked_in_turns(queue: CommandQueue) -> None:
    put(queue, "a" * 50 + "b" * 3)
    assert lanes_of(queue.next_ones(100)[0]) == "ababab" + "a" * 47
    assert [turn.record.offset for turn in queue.next_ones(100)[0] if turn.fair == "key:a"] == list(range(50))


def test_what_is_taken_up_at_once_is_bounded_in_bytes(
    queue: CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = put(queue, "abc")
    monkeypatch.setattr(waiting, "PICKED_BYTES", len(records[0].value) + 1)
    assert lanes_of(queue.next_ones(3)[0]) == "a"
    monkeypatch.setattr(waiting, "PICKED_BYTES", 0)
    assert lanes_of(queue.next_ones(3)[0]) == "a", "one, whatever its size"


def test_what_waits_behind_a_command_has_no_turn_of_its_own(queue: CommandQueue) -> None:
    [first, _] = put(queue, "ab")
    behind = record(7, first.envelope)
    queue.put(behind, None)
    assert first.key in queue
    assert "another" not in queue
    assert [one.offset for one in queue.behind(first.key, 9)] == [7]
    assert lanes_of(queue.next_ones(9)[0]) == "ab"
    assert len(queue) == 3
    queue.drop(7)
    assert (len(queue), queue.behind(first.key, 9)) == (2, [])


def test_the_oldest_are_told_by_when_the_inbox_took_them(queue: CommandQueue) -> None:
    put(queue, "bab")
    assert lanes_of(queue.older_than(1_002, 9)) == "ba"
    assert lanes_of(queue.older_than(1_002, 1)) == "b"
    assert queue.older_than(1_000, 9) == []
    queue.drop(0)
    assert lanes_of(queue.older_than(1_002, 9)) == "a", "none was older, and the oldest is another one now"
    queue.drop(1)
    queue.drop(2)
    assert queue.older_than(9_999, 9) == []
    [one, _] = put(queue, "ab")
    assert [record.value for record in queue.older_than(1_001, 9)] == [one.value], "and one came late"


def test_a_damaged_row_is_never_a_command(queue: CommandQueue, file: StateFile) -> None:
    put(queue, "a")
    file.change("UPDATE waiting SET since_ms = since_ms + 1")
    with pytest.raises(StateFileError, match="waiting record 0"):
        queue.next_ones(1)


def test_the_key_is_what_was_said_else_the_tree_of_runs_else_who_asks() -> None:
    assert fairness_key(command("gold")) == "key:gold"
    assert fairness_key(command("gold", call=True)) == "key:gold"
    assert fairness_key(command(call=True)) == "run:tree"
    assert fairness_key(command(producer="shop")) == "agent:shop"
    long = fairness_key(command("x" * 10_000))
    assert len(long) <= MAX_KEY_LENGTH + 4
    assert long != fairness_key(command("x" * 10_001))


def test_partitions_that_want_slots_get_their_parts_and_one_alone_gets_all() -> None:
    slots = Slots(10)
    first, second = slots.join(), slots.join()
    first.hungry = True
    assert slots.room(first) == 10
    first.working.update(str(number) for number in range(8))
    second.hungry = True
    assert (slots.room(first), slots.room(second)) == (0, 2)
    first.working.difference_update(["0", "1", "2", "3"])
    assert (slots.room(first), slots.room(second)) == (1, 5)
    slots.freed()
    assert first.wake.is_set()
    slots.leave(first)
    assert slots.room(second) == 10


def test_the_oldest_are_bounded_in_bytes_too(queue: CommandQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    records = put(queue, "abc")
    monkeypatch.setattr(waiting, "PICKED_BYTES", 2 * len(records[0].value))
    assert lanes_of(queue.older_than(9_999, 9)) == "ab"
    monkeypatch.setattr(waiting, "PICKED_BYTES", 0)
    assert lanes_of(queue.older_than(9_999, 9)) == "a", "one, whatever its size"


def test_what_waits_behind_nothing_is_told(queue: CommandQueue) -> None:
    [first, second] = put(queue, "ab")
    queue.put(record(7, first.envelope), None)
    queue.put(record(8, second.envelope), None)
    assert queue.left_behind(9) == []
    queue.drop(first.offset)
    assert [one.offset for one in queue.left_behind(9)] == [7]


def test_what_a_power_loss_leaves_is_in_order(file: StateFile) -> None:
    assert file.read("PRAGMA synchronous") == [(1,)]
    assert file.read("PRAGMA journal_mode") == [("wal",)]


def test_no_ended_run_is_forgotten_before_all_that_was_passed_over_for_it_is_recorded() -> None:
    state = PartitionState(StateFile.in_memory(Identity("journal", "id", 0)), "inbox", Bounds(seen_count=1))
    for number, run_id in enumerate("ab"):
        started = Entry("journal/0", 2 * number, run_id, run_id, "run.started", {SEQUENCE: b"0"})
        ended = Entry("journal/0", 2 * number + 1, run_id, run_id, "run.completed", {SEQUENCE: b"1"}, number)
        state.evolve(started)
        state.evolve(ended)
    CommandQueue(state, "inbox", 0, CODEC).put(record(0, command("a")), "key:a")
    repeated = list(range(1, 1_000, 2))  # no two of them beside each other
    for offset in repeated:
        state.skip(offset)
    recorded: list[int] = []
    for place in range(4, 100):
        name, mark = state.mark()
        state.evolve(Entry("journal/0", place, "x", "k", "run.signalled", {name: mark}))
        said = orjson.loads(mark)
        recorded += [offset for first, last in said["passed"] for offset in range(first, last + 1)]
        assert state.has_ended("a") == ("more" in said)
        if "more" not in said:
            break
    assert recorded == repeated
    assert place > 5


def test_a_run_that_was_looked_for_before_is_known_when_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    state = PartitionState(StateFile.in_memory(Identity("journal", "id", 0)), "inbox", Bounds())
    read: list[str] = []
    file_read = StateFile.read
    monkeypatch.setattr(
        StateFile, "read", lambda self, what, *given: read.append(what) or file_read(self, what, *given)
    )
    for _ in range(3):
        assert not state.has_ended("a")
    assert len(read) == 1
    state.evolve(Entry("journal/0", 0, "x", "a", "run.started", {SEQUENCE: b"0"}))
    assert not state.has_ended("a")
    state.evolve(Entry("journal/0", 1, "y", "a", "run.completed", {SEQUENCE: b"1"}, 7))
    assert state.has_ended("a")


def test_what_waits_behind_a_command_is_found_whether_it_came_now_or_lay_there(file: StateFile) -> None:
    state = PartitionState(file, "inbox", Bounds())
    queue = CommandQueue(state, "inbox", 0, CODEC)
    first, answer = record(0, command("a")), record(1, command("a"))
    queue.put(first, "key:a")
    assert queue.behind(first.key, 9) == []
    queue.put(answer, None)
    for one in (queue, CommandQueue(state, "inbox", 0, CODEC)):
        assert [behind.offset for behind in one.behind(answer.key, 9)] == [1]


def test_only_a_run_that_was_written_as_open_is_taken_out_of_the_file() -> None:
    state = PartitionState(StateFile.in_memory(Identity("journal", "id", 0)), "inbox", Bounds())
    changes: list[str] = []
    state.file._db.set_trace_callback(changes.append)

    def folded(place: int, run_id: str, number: int, event_type: str) -> None:
        state.evolve(Entry("journal/0", place, str(place), run_id, event_type, {SEQUENCE: b"%d" % number}))

    folded(0, "brief", 0, "run.started")
    folded(1, "brief", 1, "run.completed")
    folded(2, "long", 0, "run.started")
    state.write()
    assert state.file.read("SELECT run_id FROM open") == [("long",)]
    folded(3, "long", 1, "run.completed")
    state.write()
    assert state.file.read("SELECT run_id FROM open") == []
    assert state.manifest.counts["open"] == 0
    assert [text for text in changes if "DELETE FROM open" in text] == [
        "DELETE FROM open WHERE run_id = 'long'"
    ]


def test_what_was_passed_over_and_is_not_recorded_yet_outlasts_its_owner(tmp_path: Path) -> None:
    identity, path = Identity("journal", "id", 0), tmp_path / "state.db"
    state = PartitionState(open_state_file(path, identity, lambda line: None), "inbox", Bounds())
    CommandQueue(state, "inbox", 0, CODEC).put(record(0, command("a")), "key:a")
    for offset in (3, 4, 5, 7, 4, 10):
        state.skip(offset)
    state.read_to(8)
    state.mark()  # of a commit of which nobody knows what became
    state.close()

    again = PartitionState(open_state_file(path, identity, lambda line: None), "inbox", Bounds())
    name, mark = again.mark()
    assert orjson.loads(mark) == {"low": 0, "passed": [[3, 5], [7, 7]]}, "what lies behind is read again"
    again.manifest.in_order = False
    again.evolve(Entry("journal/0", 0, "x", "k", "run.signalled", {name: mark}))
    assert orjson.loads(again.mark()[1]) == {"low": 0}
    again.close()
