"""Answers in pieces on every backend: each once, in order, also for readers that go and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream import Piece
from noesium_stream.client import Client, Run
from noesium_stream.client.views import piece_reader
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.standard import StreamPiece
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker
from tests.support.backends import Backend
from tests.support.events import counted
from tests.support.reading import PATIENCE_S, eventually, numbers, stored
from tests.support.teller import Relay, Teller

pytestmark = pytest.mark.usefixtures("no_piece_lost")


async def take(run: Run, number: int | None = None, cursor: str | None = None) -> list[Piece]:
    """The next pieces; None: all until the run has ended."""
    found: list[Piece] = []
    async with asyncio.timeout(PATIENCE_S), aclosing(run.pieces(cursor)) as pieces:
        async for piece in pieces:
            found.append(piece)
            if len(found) == number:
                break
    return found


def data(pieces: Sequence[Piece]) -> list[Any]:
    return [piece.data for piece in pieces]


@asynccontextmanager
async def telling(log: EventLog, home: Path) -> AsyncIterator[Client]:
    async with Worker(log, [Teller], home=home), Client(log) as client:
        yield client


async def test_each_is_appended_in_order_whatever_their_number(log: EventLog) -> None:
    for start in range(0, 90, 30):
        await log.append_each([counted(number, "k") for number in range(start, start + 30)])
    await log.append_each([])
    await log.append_each([counted(90, "k")])
    assert numbers(await stored(log, log.topology.events("demo"))) == list(range(91))


async def test_a_reader_has_all_pieces_when_the_run_has_ended(log: EventLog, tmp_path: Path) -> None:
    words = [f"{number} " for number in range(300)]
    async with telling(log, tmp_path) as client:
        run = await client.start("teller", {"words": words})
        assert data(await take(run)) == words
        assert await run.result(timeout=PATIENCE_S) == {"text": "".join(words)}
        # Whoever comes when all is over gets the same, also by an id alone.
        assert data(await take(await client.get_run(run.id))) == words


async def test_a_reader_that_comes_back_goes_on_behind_its_cursor(log: EventLog, tmp_path: Path) -> None:
    async with telling(log, tmp_path) as client:
        run = await client.start("teller", {"words": list("abcdef"), "halt": 3})
        seen = await take(run, 2)
        again = asyncio.create_task(take(run, cursor=seen[-1].cursor))
        await run.signal("go")
        rest = await again
    assert data(seen) + data(rest) == list("abcdef")
    assert not any(piece.restarted or piece.missing for piece in rest)


async def test_a_run_without_pieces_ends_without_any(log: EventLog, tmp_path: Path) -> None:
    async with telling(log, tmp_path) as client:
        run = await client.start("teller", {"words": []})
        assert await take(run) == []


async def test_pieces_are_read_while_the_node_still_works(log: EventLog, tmp_path: Path) -> None:
    async with telling(log, tmp_path) as client:
        run = await client.start("teller", {"words": list("ab"), "halt": 1})
        assert data(await take(run, 1)) == ["a"]
        assert (await run.info()).status in ("running", "waiting")
        await run.signal("go")
        await run.result(timeout=PATIENCE_S)


def forged(run: Run, agent: str, word: str, *, number: int, epoch: int) -> EventEnvelope:
    piece = StreamPiece(
        run_id=run.id, node="tell", step=1, task_path="pull:tell", epoch=epoch, execution=0, data=word
    )
    return EventEnvelope(
        event_id=f"01a21588-2c23-74ee-981f-25b41646305{number}",
        event_type=piece.event_type(),
        timestamp_ms=1_767_225_600_123,
        producer=AgentRef(agent, agent, "local", "x"),
        trace=TraceContext("1" * 32, "2" * 16),
        partition_key=run.id,
        payload=piece.payload(),
        stream_sequence=number,
    )


async def test_what_others_put_into_the_stream_is_dropped_and_said_once(
    log: EventLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with telling(log, tmp_path) as client:
        run = await client.start("teller", {"words": list("abc"), "halt": 1})
        seen = await take(run, 1)
        epoch = seen[0].attempt.epoch
        await log.append_each(
            [
                forged(run, "intruder", "forged", number=0, epoch=epoch + 1),
                forged(run, "teller", "an older owner", number=1, epoch=epoch - 1),
                forged(run, "teller", "x" * 200_000, number=2, epoch=epoch + 1),
            ]
        )
        await run.signal("go")
        assert data(await take(run, cursor=seen[-1].cursor)) == ["b", "c"]
    said = [record.getMessage() for record in caplog.records if record.name == piece_reader.__name__]
    assert said == [
        f"records in the stream of run {run.id} were dropped: 1 are not from the agent of the run, "
        "1 are too large"
    ]


async def test_a_record_that_cannot_be_decoded_stops_no_reader(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    async with telling(log, tmp_path) as client:
        run = await client.start("teller", {"words": list("ab"), "halt": 1})
        seen = await take(run, 1)
        partition = _partition(await log.end(log.topology.stream), run)
        await backend.inject(
            log.topology.stream, partition, run.id, [("ce_type", b"stream.piece")], b"\x00junk"
        )
        await run.signal("go")
        assert data(await take(run, cursor=seen[-1].cursor)) == ["b"]


async def test_retention_that_has_removed_the_first_pieces_is_told(log: EventLog, tmp_path: Path) -> None:
    async with telling(log, tmp_path) as client:
        run = await client.start("teller", {"words": list("abc")})
        seen = await take(run)
        await log.truncate(log.topology.stream, {_partition(await log.end(log.topology.stream), run): 2})
        late = await take(await client.get_run(run.id))
        assert data(late) == data(seen)[2:]
        assert late[0].missing == 2


def _partition(ends: dict[int, int], run: Run) -> int:
    return partition_of(run.id, len(ends))


async def test_a_reader_waits_for_a_worker_that_comes_later(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        run = await client.start("teller", {"words": list("ab")})
        reading = asyncio.create_task(take(run))
        await eventually(lambda: _has_stream(log))
        async with Worker(log, [Teller], home=tmp_path):
            assert data(await reading) == ["a", "b"]


async def _has_stream(log: EventLog) -> bool:
    return log.topology.stream in await log.layout()


async def test_a_caller_passes_on_the_pieces_of_its_provider(log: EventLog, tmp_path: Path) -> None:
    words = [f"{number} " for number in range(100)]
    async with Worker(log, [Teller, Relay], home=tmp_path), Client(log) as client:
        for _ in range(2):  # the second call finds the reader that the first one has begun
            run = await client.start("relay", {"words": words})
            assert data(await take(run)) == [[word, False] for word in words]
            assert await run.result(timeout=PATIENCE_S) == {"text": "".join(words)}


async def test_where_signatures_are_required_pieces_of_strangers_are_dropped(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ann = Signer(Ed25519PrivateKey.generate(), "ann")
    log = await backend.open(signer=ann, verifier=Verifier({"ann": ann.public_key}, required=True))
    stranger = await backend.open()
    async with telling(log, tmp_path) as client:
        run = await client.start("teller", {"words": list("abc"), "halt": 1})
        seen = await take(run, 1)
        # All of it is right, but for the key that nobody has used.
        epoch = seen[0].attempt.epoch
        await stranger.append_each([forged(run, "teller", "forged", number=0, epoch=epoch + 1)])
        await run.signal("go")
        assert data(await take(run, cursor=seen[-1].cursor)) == ["b", "c"]
    assert "1 are not valid, or not signed by whom they are from" in caplog.text
