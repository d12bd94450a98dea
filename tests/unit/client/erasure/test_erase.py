"""Erasing a person: what is readable afterwards, and what is refused before anything happens."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client.erasure import erase
from noesium_stream.client.erasure.scan import Needles, Scanned, files_in, scan_files
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ErasureError, LogUnavailableError, SubjectKeyError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import MemoryWritten
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.log.sqlite import contents
from noesium_stream.memory import MemoryManager, memory_of
from noesium_stream.state_file.claim import locked

CLOCK = SystemClock()
PRODUCER = AgentRef("op", "client", "local", "i")
CITY, SAID = "Lisbon on the Tagus", "ada of Lovelace"


@pytest.fixture
async def log(tmp_path: Path) -> Any:
    log = await open_log(f"sqlite:///{tmp_path / 'home' / 'log.db'}")
    yield log
    await log.close()


def memory(log: EventLog, tmp_path: Path, scope: str = "user:ada") -> MemoryManager:
    return memory_of(log, tmp_path / "home", PRODUCER, scope)


async def erased(log: EventLog, tmp_path: Path, subject: str = "user:ada", **more: Any) -> Any:
    return await erase(log, tmp_path / "home", subject, PRODUCER, CLOCK, **more)


async def records(log: EventLog, domain: str) -> list[Record]:
    topic = log.topology.events(domain)
    return [one async for one in log.read(topic, {}, until=await log.end(topic))]


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_nothing_of_a_user_is_left_anywhere_and_all_else_stays(log: EventLog, tmp_path: Path) -> None:
    mine = memory(log, tmp_path)
    await mine.write("city", CITY, {"kind": "place"}, said_by=SAID)
    item = await mine.durable.recall("city")
    assert item is not None
    await mine.at("shared").write("towns", f"{CITY} and others", source=item)
    await mine.at("user:bo").write("city", "Porto on the Douro")
    assert len(await mine.search("Tagus")) == 1
    mine.close()
    assert CITY.encode() in bytes_below(tmp_path / "home" / "memory")
    done = await erased(log, tmp_path, prove=True, reason="asked for it")
    assert (len(done.keys), sum(done.records.values()), done.left) == (1, 2, [])
    assert done.scanned.found == []
    assert done.scanned.records >= 4
    assert done.scanned.file_bytes > 10_000
    for text in (CITY, SAID, "Tagus"):
        assert text.encode() not in bytes_below(tmp_path)
    assert await mine.recall("city") is None
    assert await mine.at("shared").recall("towns") is None
    assert await mine.at("user:bo").recall("city") == "Porto on the Douro"
    assert await mine.search("Tagus") == []
    [event] = [one.envelope for one in await records(log, "subject")]
    assert event.payload == {
        "subject": "user:ada",
        "keys": done.keys,
        "records": 2,
        "erased_by": "op",
        "reason": "asked for it",
    }
    mine.close()


async def test_a_process_that_has_the_memory_open_forgets_as_well(log: EventLog, tmp_path: Path) -> None:
    mine = memory(log, tmp_path)
    await mine.write("city", CITY)
    assert await mine.search("Tagus")
    await erased(log, tmp_path)
    assert await mine.recall("city") is None
    assert await mine.search("Tagus") == []
    await mine.write("city", "Porto")
    assert await mine.recall("city") == "Porto"
    mine.close()


async def test_it_may_be_repeated_and_says_so_on_the_log_once(log: EventLog, tmp_path: Path) -> None:
    await memory(log, tmp_path).write("city", CITY)
    first = await erased(log, tmp_path)
    again = await erased(log, tmp_path, prove=True, words=[CITY])
    assert (again.keys, again.before, again.scanned.found) == ([], first.keys, [])
    assert len(await records(log, "subject")) == 1
    with pytest.raises(ErasureError, match="No text of user:ada is known"):
        await erased(log, tmp_path, prove=True)


async def test_a_dry_run_changes_nothing(log: EventLog, tmp_path: Path) -> None:
    mine = memory(log, tmp_path)
    await mine.write("city", CITY)
    done = await erased(log, tmp_path, dry_run=True)
    assert len(done.keys) == 1
    assert await mine.recall("city") == CITY


async def test_what_was_written_before_there_was_a_key_is_refused(log: EventLog, tmp_path: Path) -> None:
    keys, log.decoder.sealer.keys = log.decoder.sealer.keys, None  # type: ignore[attr-defined]
    mine = memory(log, tmp_path)
    await mine.write("city", CITY)
    with pytest.raises(ErasureError, match="has no store of keys"):
        await erased(log, tmp_path)
    log.decoder.sealer.keys = keys  # type: ignore[attr-defined]
    with pytest.raises(ErasureError, match="was written before there was a key"):
        await erased(log, tmp_path)
    await mine.write("town", "Porto on the Douro")
    done = await erased(log, tmp_path, partly=True)
    assert len(done.left) == 1
    assert await mine.recall("town") is None
    assert await mine.recall("city") == CITY


async def test_a_copy_in_a_readable_record_or_in_a_file_is_found_before_the_key_is_gone(
    log: EventLog, tmp_path: Path
) -> None:
    mine = memory(log, tmp_path)
    await mine.write("city", CITY)
    await mine.at("shared").write("towns", f"I heard of {CITY}.")  # nobody says where it comes from
    (tmp_path / "home" / "workspaces").mkdir()
    (tmp_path / "home" / "workspaces" / "note.txt").write_bytes(
        base64.b64encode(b"x" + CITY.encode() + b"yz")
    )
    with pytest.raises(ErasureError) as caught:
        await erased(log, tmp_path)
    assert "events.memory/" in caught.value.message
    assert "note.txt" in caught.value.message
    assert await mine.recall("city") == CITY


async def test_states_in_use_are_refused_and_others_removed(log: EventLog, tmp_path: Path) -> None:
    mine = memory(log, tmp_path)
    await mine.write("city", CITY)
    state = tmp_path / "home" / "projections" / "x" / "v1" / "topic-0.state"
    state.parent.mkdir(parents=True)
    state.write_bytes(CITY.encode())
    with locked(state), pytest.raises(ErasureError, match="is in use"):
        await erased(log, tmp_path)
    assert await mine.recall("city") == CITY
    done = await erased(log, tmp_path, prove=True)
    assert not state.exists()
    assert done.scanned.found == []


async def test_nobody_is_erased_by_a_misspelt_name(log: EventLog, tmp_path: Path) -> None:
    await memory(log, tmp_path).write("city", CITY)
    with pytest.raises(ErasureError, match="Nothing is known of user:adda"):
        await erased(log, tmp_path, "user:adda")


async def test_memory_of_a_log_whose_keys_are_elsewhere_is_not_read_as_if_there_were_none(
    log: EventLog, tmp_path: Path
) -> None:
    await memory(log, tmp_path).write("city", CITY)
    (tmp_path / "home" / "log.db.keys").rename(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="was not destroyed there") as caught:
        await memory(log, tmp_path).recall("city")
    assert isinstance(getattr(caught.value, "cause", caught.value), SubjectKeyError)


@pytest.mark.parametrize(
    "text", ["Zoë Müller-Lüdenscheidt", 'She said "no\\way"', "plain words here", "ü" * 90]
)
def test_a_text_is_found_in_every_form_in_which_a_file_may_have_it(text: str, tmp_path: Path) -> None:
    forms = [text.encode(), json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()]
    forms += [base64.b64encode(before + text.encode() + b"-end") for before in (b"", b"1", b"12")]
    for number, form in enumerate(forms):
        path = tmp_path / f"f{number}"
        path.write_bytes(b"\0" * (8 * 2**20 - 10) + form + b"\0" * 100)
        scanned = Scanned()
        scan_files(files_in([path]), Needles([text]), scanned)
        assert [one.place for one in scanned.found] == [str(path)], form


def written(value: str) -> MemoryWritten:
    return MemoryWritten(key="k", value=value, value_type="str", scope="user:ada")


async def test_a_dead_letter_of_a_sealed_record_holds_what_the_record_holds(
    log: EventLog, tmp_path: Path
) -> None:
    await log.append([root_event(written(CITY), PRODUCER, CLOCK)])
    [record] = await records(log, "memory")
    assert CITY.encode() not in record.value
    assert CITY.encode() not in base64.b64encode(record.value)
    assert record.envelope.payload["value"] == CITY


async def test_the_proof_finds_plain_text_that_the_file_has_compressed(tmp_path: Path) -> None:
    """In another namespace than the log's own, so that nothing but the search of the file meets it."""
    path, word = tmp_path / "home" / "log.db", "Rosalind Franklin"
    other = await open_log(f"sqlite:///{path}?namespace=other&partitions=1")
    for number in range(60):
        about = f"{word} measured {number}" if number == 20 else f"{number} nothing"
        event = MemoryWritten(key="k", value=about, value_type="str", scope="shared")
        await other.append([root_event(event, PRODUCER, CLOCK)])
    await other.close()
    assert word.encode() not in path.read_bytes()
    log = await open_log(f"sqlite:///{path}")
    mine = memory(log, tmp_path)
    await mine.write("city", CITY)
    mine.close()
    with pytest.raises(ErasureError, match=f"log.db has '{word}'"):
        await erased(log, tmp_path, words=[word])
    done = await erased(log, tmp_path, words=[word], partly=True, prove=True)
    assert [(Path(one.place).name, one.text) for one in done.scanned.found] == [("log.db", word)]
    await log.close()


async def test_the_proof_is_not_given_while_removed_pages_may_be_in_the_write_ahead_log(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_PATIENCE_S", 0.01)
    mine = memory(log, tmp_path)
    await mine.write("city", CITY)
    mine.close()
    with closing(sqlite3.connect(tmp_path / "home" / "log.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM topic").fetchone()
        with pytest.raises(LogUnavailableError, match="-wal is in use"):
            await erased(log, tmp_path, prove=True)
        reader.execute("ROLLBACK")
    assert (await erased(log, tmp_path, words=[CITY], prove=True)).scanned.found == []
