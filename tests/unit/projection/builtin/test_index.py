"""The index of positions: what it says, and that readers of runs say the same with it and without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.cli.commands.runs.show import collect
from noesium_stream.client import Client, Run
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.errors import EventHeldError, ProjectionError, RunNotFoundError
from noesium_stream.log import EventLog
from noesium_stream.log.port import Position
from noesium_stream.log.topics import TopicKind
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.builtin.index import IndexProjection, positions
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import matching
from tests.support.folding import everything, fold_of, numbered
from tests.support.many_runs import many_runs


async def catch_up(log: EventLog, folder: Path, *, share: float = 1.0) -> dict[str, Any]:
    """Fold this share of each topic's partitions; the rows."""
    until = {}
    for topic in matching(await log.layout(), IndexProjection(), log.topology):
        until[topic] = {partition: int(end * share) for partition, end in (await log.end(topic)).items()}
    with ProjectionEngine(log, folder) as engine:
        engine.register("index", IndexProjection())
        await engine.catch_up("index", until)
        return dict(engine.scan("index"))


async def test_every_event_correlation_and_run_is_found_where_it_lies(tmp_path: Path) -> None:
    async with many_runs("memory://", tmp_path) as (log, _, _):
        rows = await catch_up(log, tmp_path / "state")
        expected: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic in matching(await log.layout(), IndexProjection(), log.topology):
            async for record in log.read(topic, {}, until=await log.end(topic)):
                event, place = record.unchecked, f"{record.topic}/{record.partition}"
                names = [f"event/{event.event_id}"]
                names += [f"correlation/{event.correlation_id}"] if event.correlation_id else []
                names += [f"run/{record.key}"] if record.header("noesium_seq") else []
                for name in names:
                    expected[name][place].append(record.offset)
        assert rows == {
            name: {place: [found[0], found[-1], len(found)] for place, found in places.items()}
            for name, places in expected.items()
        }
        assert positions({"a.b/10": [3, 3, 1], "a.b/2": [7, 9, 2]}) == [
            Position("a.b", 2, 7),
            Position("a.b", 10, 3),
        ]


async def test_runs_are_found_and_shown_alike_with_an_index_that_is_behind_or_not(tmp_path: Path) -> None:
    async with many_runs("memory://", tmp_path) as (log, client, _):
        await client.start("doer", {"what": "nothing"})  # in the inbox alone
        for share in (0.0, 0.5, 1.0):
            await catch_up(log, tmp_path / "state", share=share)
            await assert_same_answers(log, client, tmp_path / "state")


async def assert_same_answers(log: EventLog, client: Client, folder: Path) -> None:
    ids = [info.run_id for info in await client.list_runs()]
    some = [run_id[:length] for length, run_id in zip((35, 25, 20, 12, 4, 2), ids[::5], strict=False)]
    indexed = Client(log, index=folder)
    for text in [*ids, *some, "nothing"]:
        assert await answer(indexed, text) == await answer(client, text), text


async def answer(client: Client, run_id: str) -> Any:
    try:
        run = await client.get_run(run_id)
    except RunNotFoundError as error:
        return error.message
    return run.agent_type, run.id, causal_tree(run.id, *await collect(run))


async def test_with_an_index_no_journal_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with many_runs("memory://", tmp_path) as (log, client, _):
        await catch_up(log, tmp_path / "state")
        last = (await client.list_runs(agent_type="doer", status="completed"))[0]
        own = [record async for record in Run.records(await client.get_run(last.run_id), follow=False)]
        read, reading = [], log.read

        async def spied(topic: str, *rest: Any, **options: Any) -> AsyncIterator[Any]:
            async for record in reading(topic, *rest, **options):
                if log.topology.kind(topic) is TopicKind.JOURNAL:
                    read.append(record)
                yield record

        monkeypatch.setattr(log, "read", spied)
        run = await Client(log, index=tmp_path / "state").get_run(last.run_id)
        assert read == []
        assert [event.event_id async for event in run.events(follow=False)] == [
            record.unchecked.event_id for record in own
        ]
        assert (read[0].offset, read[-1].offset) == (own[0].offset, own[-1].offset)
        assert own[0].offset > 0


async def test_a_state_that_cannot_be_trusted_is_not_asked(tmp_path: Path) -> None:
    async with many_runs("memory://", tmp_path) as (log, client, _):
        for fault in ("another topic", "another log", "ahead of the log", "damaged", "no database"):
            await catch_up(log, tmp_path / fault)
            files = sorted((tmp_path / fault).glob("index/v1/*.journal-*.state"))
            assert len(files) > 20
            for path in files:
                spoil(path, fault)
            await assert_same_answers(log, client, tmp_path / fault)


def spoil(path: Path, fault: str) -> None:
    if fault == "no database":
        path.write_bytes(b"x" * 5_000)
        return
    with closing(StateFile.open_to_read(path)) as found:
        identity = found.manifest.identity
    file = StateFile.open(path, identity)
    if fault == "damaged":
        file._db.execute("DELETE FROM row WHERE key > ?", (b"srun/",))  # as if there were no runs
    else:  # it knows of no run: who believes it finds none
        rows: dict[bytes, bytes | None] = {key: None for key, _ in file.scan(b"srun/")}
        faults = {
            "another topic": replace(file.manifest, identity=replace(identity, topic_id="other")),
            "another log": replace(file.manifest, last_event_id="other"),
            "ahead of the log": replace(file.manifest, cursor=file.manifest.cursor + 1_000),
        }
        file.commit(rows, faults[fault])
    file.close()


class Both(BaseProjection[list[int]]):
    """Each event in the row of its key and in one of all; a negative number fails in the second of them."""

    name = "both"
    topics = ("events.*",)
    on_error = "stop"
    failing = True

    def initial_state(self) -> list[int]:
        return []

    def keys(self, event: Any) -> tuple[str, ...]:
        return (event.partition_key, "all") if event.payload["n"] else ()

    def apply(self, state: list[int], event: Any) -> list[int]:
        n = event.payload["n"]
        if n < 0 and self.failing and any(one > 90 for one in state):
            raise ValueError("told to")
        state.append(n)
        return state


def test_an_event_is_in_all_of_its_rows_or_in_none(tmp_path: Path) -> None:
    records = numbered([("a", 1), ("b", 95), ("a", 2), ("c", 0), ("a", -3), ("a", 4)])
    fold = fold_of(Both(), tmp_path / "x.state")
    with pytest.raises(EventHeldError, match="@4"):
        fold.take(records)
    assert (fold.state("a"), fold.state("b"), fold.state("all")) == ([1, 2], [95], [1, 95, 2])
    fold.flush()
    assert fold.cursor == 4
    fold.projection.failing = False  # type: ignore[attr-defined]
    fold.take(records)
    fold.flush()
    rows = {key: value for key, value in everything(fold).items() if key.startswith(b"s")}
    assert rows == {b"sa": b"[1,2,-3,4]", b"sb": b"[95]", b"sall": b"[1,95,2,-3,4]"}
    fold.file.close()


def test_events_of_several_rows_are_not_held_back_for_one(tmp_path: Path) -> None:
    projection = Both()
    projection.on_error = "hold"  # type: ignore[misc]
    with pytest.raises(ProjectionError, match="several rows"):
        fold_of(projection, tmp_path / "x.state")
