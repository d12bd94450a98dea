"""A log of an earlier commit, with all that lies beside it, is read, verified and finished by this one.

The data and how they were made: `tests/data/earlier_log/README.md`. What the earlier commit said of them is
in the JSON files there.
"""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import tarfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner

from noesium_stream.cli.app import cli
from noesium_stream.client import Client, Run
from noesium_stream.clock import SystemClock
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.log import EventLog, open_log
from noesium_stream.worker import Worker
from tests.data.earlier_log import describe, nodes
from tests.data.earlier_log.agents import AGENTS, OTHER_VERSIONS
from tests.support.invariants import broken_copies, broken_runs, fenced_writers, read_book, torn_commits
from tests.support.kafka import KafkaServer, remove_topics
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.support.recorded_kafka import read_recorded, write_again

DATA = Path(describe.__file__).parent
NAMESPACE = "earlierlog001"
MOST_BYTES = 1 << 28
REFUSED = "019c0000-0000-7000-8000-00000000000a"
"""The run whose command became a dead letter: it never begins, and never ends."""


def read_expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return found


def unpack(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=MOST_BYTES)


EXPECTED = read_expected("sqlite")
ON_KAFKA = read_expected("kafka")
ENDED = sorted(run_id for run_id, run in EXPECTED["runs"].items() if run["status"] in describe.ENDED)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the log and of what lay beside it, a minute after it was made.

    An inbox is kept for 14 days: by today's time the commands that wait there would be gone.
    """
    with tarfile.open(fileobj=io.BytesIO(unpack((DATA / "sqlite.tar.zst").read_bytes()))) as archive:
        archive.extractall(tmp_path, filter="data")
    start_ms, start_s = EXPECTED["made_ms"] + 60_000, time.monotonic()
    monkeypatch.setattr(
        SystemClock, "now_ms", lambda self: start_ms + int(1000 * (time.monotonic() - start_s))
    )
    nodes.BODIES.clear()
    nodes.OUTSIDE.clear()
    return tmp_path


def address(folder: Path) -> str:
    return f"sqlite:///{folder}/log.db?namespace={NAMESPACE}"


@pytest.fixture
async def log(folder: Path) -> AsyncIterator[EventLog]:
    log = await open_log(address(folder), catalogue=describe.known_events())
    yield log
    await log.close()


async def test_every_envelope_is_decoded_and_encoded_to_the_same_bytes(log: EventLog) -> None:
    codec = EnvelopeCodec(describe.known_events())
    counts = await describe.records_of(log)
    for topic in await log.topics():
        for record in await stored(log, topic.name):
            assert codec.encode(record.envelope) == record.value, record
    assert counts == EXPECTED["records"]


async def test_every_run_has_the_outcome_the_steps_and_the_states_that_it_had_and_replays_as_recorded(
    log: EventLog,
) -> None:
    async with Client(log) as client:
        found = await describe.runs_of(client, states=True)
    assert found.keys() == EXPECTED["runs"].keys()
    for run_id, run in found.items():
        assert run == EXPECTED["runs"][run_id]
        assert run.get("replay", ["as recorded"])[-1] == "as recorded"


async def test_open_questions_generations_and_dead_letters_are_those_that_there_were(log: EventLog) -> None:
    async with Client(log) as client:
        assert await describe.questions_of(client) == EXPECTED["questions"]
        assert await describe.generations_of(client) == EXPECTED["generations"]
    assert await describe.letters_of(log) == EXPECTED["letters"]


async def test_a_thread_of_langgraph_s_checkpoints_has_all_its_states(log: EventLog) -> None:
    assert await describe.threads_of(log) == EXPECTED["threads"]


async def test_projections_fold_the_log_to_the_rows_that_they_had(log: EventLog) -> None:
    rows = await describe.projections_of(log)
    assert rows["facts"] == EXPECTED["facts"]
    assert rows["execution"] == EXPECTED["execution"]


async def test_projections_go_on_from_the_states_in_their_files(log: EventLog, folder: Path) -> None:
    reports: list[str] = []
    anew = await describe.projections_of(log)
    assert await describe.projections_of(log, folder / "projections", reports.append) == anew
    assert reports == []


def test_the_command_line_lists_shows_and_verifies_every_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    listed = command(folder, "runs", "--all", "--limit", "1000")
    for run_id, run in EXPECTED["runs"].items():
        [line] = [line for line in listed.splitlines() if line.startswith(run_id)]
        assert run["agent"] in line
        words = [now for now, was in describe.WORDS.items() if was == run["status"]]
        waits = ["waiting"] if run["status"] in ("requested", "running") else []
        assert any(word in line for word in [*(words or [run["status"]]), *waits])
        shown = command(folder, "show", run_id)
        assert run_id in shown.splitlines()[0]
        for node in nodes_of(run):
            assert node in shown
    purchases = [run_id for run_id in ENDED if EXPECTED["runs"][run_id]["agent"] == "purchase"]
    verified = command(folder, "verify", *purchases, "--graph", "tests.data.earlier_log.agents:PURCHASE")
    assert verified.count("as recorded (completed)") == len(purchases) == 3


def nodes_of(run: dict[str, Any]) -> list[str]:
    """Some nodes that a run has passed; a fork shows those that it has not from its parent."""
    passed = {"chain": ["first", "second"], "purchase": ["inner", "each", "buy"]}
    return passed.get(run["agent"], []) if run["steps"] else []


def command(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "--log", address(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("with_files", [True, False])
async def test_open_runs_and_waiting_commands_are_finished_with_each_step_done_once(
    log: EventLog, folder: Path, with_files: bool
) -> None:
    if not with_files:
        shutil.rmtree(folder / "home")
    said: list[str] = []
    await finish(log, folder / "home", EXPECTED, said)
    # The states are of an earlier format: they are discarded, with the reason, and folded anew.
    reread = [line for line in said if "is read from its beginning" in line]
    assert all("has the format 3, not 5. " in line for line in reread)
    assert bool(reread) == with_files
    assert not any("in memory" in line for line in said)


def test_every_envelope_on_kafka_is_decoded_and_encoded_to_the_same_bytes() -> None:
    codec = EnvelopeCodec(describe.known_events())
    counts: dict[str, dict[str, int]] = {}
    for topic in read_recorded(DATA / "kafka.jsonl.zst"):
        types = Counter[str]()
        for message in topic.messages:
            event = codec.decode(message.value)
            assert codec.encode(event) == message.value, (topic.name, message.partition, message.offset)
            types[event.event_type] += 1
        counts[topic.name.removeprefix(f"{NAMESPACE}.")] = dict(types)
    assert counts == ON_KAFKA["records"]


@pytest.fixture
async def kafka_log(kafka: KafkaServer) -> AsyncIterator[EventLog]:
    """The records on a broker, which may have been left there by a run that was broken off."""
    nodes.BODIES.clear()
    nodes.OUTSIDE.clear()
    await asyncio.to_thread(remove_topics, kafka.bootstrap, NAMESPACE)
    log = await open_log(kafka.url(NAMESPACE), catalogue=describe.known_events())
    await write_again(read_recorded(DATA / "kafka.jsonl.zst"), log, kafka.bootstrap)
    yield log
    await log.close()
    await asyncio.to_thread(remove_topics, kafka.bootstrap, NAMESPACE)


async def test_records_on_kafka_are_read_verified_and_finished_with_each_step_done_once(
    kafka_log: EventLog, tmp_path: Path
) -> None:
    found = await describe.described(kafka_log)
    assert found.keys() == ON_KAFKA.keys() - {"keys", "made_ms"}
    for part, value in found.items():
        assert value == ON_KAFKA[part], part
    nodes.BODIES.clear()  # a replay runs bodies
    await finish(kafka_log, tmp_path, ON_KAFKA, [])


async def finish(log: EventLog, home: Path, expected: dict[str, Any], said: list[str]) -> None:
    """Let a worker of this commit do all that is left, and judge it."""
    agents = list(AGENTS.values())
    async with (
        Client(log) as client,
        Worker(log, agents, other_versions=OTHER_VERSIONS, home=home, progress=said.append),
    ):
        runs = {
            name: client.run_handle(name.partition("/")[0], run_id)
            for name, run_id in expected["keys"].items()
        }
        interrupted = await keys_of_calls(runs["charge/killed"])
        await answer(runs)
        results = {name: await runs[name].result(PATIENCE_S) for name in LEFT}
        assert results == LEFT
        assert (await runs["purchase/waiting"].result(PATIENCE_S))["found"] == [
            *("left 13.50", "right Elm Street CALM", "item 4", "item 5")
        ]
        await eventually(lambda: tallied(log))
        found = {info.run_id: info.status for info in await client.list_runs() if info.run_id != REFUSED}
        assert set(found.values()) <= set(describe.ENDED)
        # What was done before is not done again, and what was not is done once. (A replay runs bodies, too.)
        assert Counter(nodes.BODIES) == BODIES
        assert Counter(words for words, _ in nodes.OUTSIDE) == OUTSIDE
        assert ("third", interrupted["third"]) in nodes.OUTSIDE
        described = await describe.runs_of(client, states=False)
    for run_id, run in described.items():
        assert run.get("replay", ["as recorded"])[-1] == "as recorded", (run_id, run)
        was = expected["runs"].get(run_id, {"status": None})
        if was["status"] in describe.ENDED:
            assert all(run[name] == was[name] for name in run)
    assert await faults_of(log) == []


async def keys_of_calls(run: Run) -> dict[str, str]:
    """The idempotency keys of a run's effects, by their names."""
    events = [event async for event in run.events(follow=False) if event.event_type == "effect.requested"]
    return {event.payload["name"]: event.payload["idempotency_key"] for event in events}


async def answer(runs: dict[str, Run]) -> None:
    """What people and programs have to say."""
    await runs["waiter/asked"].approve(value="yes", by="ada")
    await runs["waiter/listening"].signal("go", "now")
    await runs["grown/first generation"].signal("go", "later")
    await runs["order/moved and open"].approve(value="Bob", by="bob")
    await runs["pinned/old"].approve(value="Cleo", by="cleo")
    [effect] = await runs["charge-external/taken over"].unresolved_effects()
    await runs["charge-external/taken over"].resolve_effect(effect.effect_id, "result", "third was done")
    await eventually(lambda: runs["pinned/newer"].approvals())
    await runs["pinned/newer"].approve(value="Dora", by="dora")


LEFT: dict[str, Any] = {
    "chain/killed": {"dies": "step", "done": ["first", "second", "third", "fourth"]},
    "charge/killed": {"dies": "effect", "done": ["first", "second", "third", "fourth"]},
    "charge-external/taken over": {"dies": "effect", "done": ["first", "second", "third was done", "fourth"]},
    **{f"queue/queued {n}": {"n": n, "twice": 2 * n} for n in range(6)},
    "waiter/asked": {
        "kind": "question",
        "heard": {"approved": True, "value": "yes", "by": "ada"},
        "last": "after question",
    },
    "waiter/listening": {"kind": "signal", "heard": "now", "last": "after signal"},
    "waiter/sleeping": {"kind": "long sleep", "heard": "long sleep", "last": "after long sleep"},
    "grown/first generation": {"kind": "signal", "heard": "later", "last": "after signal"},
    "grown/waiting": {"kind": "short sleep", "heard": "short sleep", "last": "after short sleep"},
    "asker/unanswered": {"text": "pepper", "upper": "PEPPER", "price": 60},
    "order/moved and open": {"amount": "12.5 EUR", "by": "Bob", "receipt": "12.5 EUR"},
    "pinned/old": {"cents": 1250, "by": "Cleo", "receipt": "1250 cents"},
    "pinned/newer": {"amount": "8 EUR", "by": "Dora", "receipt": "8 EUR"},
}
"""The runs that were left, but for a purchase with a time in it, and what comes of them."""

BODIES = Counter(["third", "third", "third", *["fourth"] * 3, *(f"hold {n}" for n in range(6))])
OUTSIDE = Counter(
    ["third", "third", *["fourth"] * 3, "price of 2", "reserve 31", "pay 12.50"],
)


async def tallied(log: EventLog) -> bool:
    """Whether the handler has said the total of each key after each fact, once and in order."""
    totals: dict[str, list[int]] = {}
    for record in await stored(log, log.topology.events("fact")):
        known = totals.setdefault(record.key, [])
        known.append((known or [0])[-1] + record.envelope.payload["n"])
    said: dict[str, list[int]] = {}
    for record in await stored(log, log.topology.events("tally")):
        said.setdefault(record.key, []).append(record.envelope.payload["total"])
    return said == totals


async def faults_of(log: EventLog) -> list[str]:
    """What is repeated, lost or torn in the journals.

    Epochs of writers are a broker's: on another one than that of the records they begin anew.
    """
    types = [kind for kind in AGENTS if kind != "tally"]
    book = await read_book(log, types)
    faults = list(torn_commits(book.all()))
    for records in book.journals.values():
        faults += [*broken_runs(records), *broken_copies(records), *fenced_writers(records)]
        done = Counter(
            (record.key, record.envelope.payload["step"], record.envelope.payload["task_path"])
            for record in records
            if record.event_type == "kernel.node.completed"
        )
        faults += [f"done more than once: {step}" for step, count in done.items() if count > 1]
    anew = log.url.startswith("kafka:")
    return [fault for fault in faults if not (anew and fault.startswith("epoch:"))]
