"""States that travel: pushed, pulled, damaged on the way, signed, pruned; in a folder, in memory, on S3."""

from __future__ import annotations

import errno
import hashlib
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import fsspec
import orjson
import pytest
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from moto.server import ThreadedMotoServer

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ConfigError, ProjectionLoadError, SnapshotError, StateFileError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.code_fingerprint import fingerprint
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.group.member import group_of
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.stored_projection import (
    StoredProjection,
    current_version,
    describe,
    open_stored_projection,
)
from noesium_stream.projection.transfer import pull as landing
from noesium_stream.projection.transfer.object_store import Depot
from noesium_stream.projection.transfer.pull import Pulled, pull
from noesium_stream.projection.transfer.push import projections_in, prune, push, pushed
from noesium_stream.projection.transfer.push_manifest import MANIFEST, Shipment
from noesium_stream.state_file.claim import locked
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted

CLOCK = VirtualClock()
KEYS = [f"k{n}" for n in range(12)]
ANN, EVE = Signer(Ed25519PrivateKey.generate(), "ann"), Signer(Ed25519PrivateKey.generate(), "eve")
KNOWS_ANN = Verifier({"ann": ANN.public_key}, required=True)


def load(reference: str) -> AnyProjection:
    if reference != "tests:Numbers":
        raise ProjectionLoadError(reference)
    return Numbers()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=3", catalogue=catalogue())
    await add(log, 0, 300)
    yield log
    await log.close()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"b{secrets.token_hex(6)}"
    boto3.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture(params=["folder", "memory", "s3"])
def depot(request: pytest.FixtureRequest, tmp_path: Path) -> Depot:
    if request.param == "s3":
        return Depot(f"s3://{request.getfixturevalue('bucket')}/states")
    if request.param == "memory":
        return Depot(f"memory://{secrets.token_hex(6)}")
    return Depot(str(tmp_path / "depot"))


async def add(log: EventLog, first: int, last: int) -> None:
    await log.append([counted(n, KEYS[n % len(KEYS)]) for n in range(first, last)])


def rows(first: int, last: int) -> dict[str, list[int]]:
    return {key: [n for n in range(first, last) if KEYS[n % len(KEYS)] == key] for key in KEYS}


async def folded(log: EventLog, folder: Path) -> StoredProjection:
    describe(folder, Numbers(), group_of(log, Numbers()), "tests:Numbers")
    with ProjectionEngine(log, folder) as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
    return open_stored_projection(folder, "numbers", load=load)


def sent(depot: Depot, stored: StoredProjection, signer: Signer | None = None) -> Shipment:
    CLOCK.advance(1)
    return push(depot, stored, CLOCK, signer)


async def taken(log: EventLog, depot: Depot, folder: Path, **options: Any) -> tuple[Pulled, list[str]]:
    said: list[str] = []
    settings: dict[str, Any] = {"version": None, "verifier": None, "load": load, **options}
    return await pull(log, depot, folder, "numbers", report=said.append, **settings), said


def damage(depot: Depot, place: str, change: Callable[[bytes], bytes]) -> None:
    data = depot.read(place)
    assert data is not None
    depot.write(place, change(data))


async def test_what_one_machine_pushed_another_one_takes_and_goes_on_from(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    stored = await folded(log, tmp_path / "a")
    shipment = sent(depot, stored)
    assert projections_in(depot) == ["numbers"]
    done, said = await taken(log, depot, tmp_path / "b")
    assert (done, said) == (Pulled(1, 3, 300, 0), [])
    here = open_stored_projection(tmp_path / "b", "numbers", load=load)
    assert here.about == replace(stored.about, reference=None), "who attaches it names its code"
    assert here.about.code is not None
    assert dict(here.rows()) == rows(0, 300)
    await add(log, 300, 360)
    seen: list[int] = []

    def call(function: Callable[..., Any], *args: Any) -> Any:
        if function.__name__ == "apply":
            seen.append(args[1].payload["n"])
        return function(*args)

    with ProjectionEngine(log, tmp_path / "b", call=call) as engine:
        engine.register("numbers", Numbers())
        assert await engine.get_state("numbers") == rows(0, 360)
    assert sorted(seen) == list(range(300, 360))
    assert sum(file.events for file in shipment.files) == 300
    assert not [path for path in (tmp_path / "b").rglob("*") if "pulled" in path.name]


class Other(Numbers):
    """Other code of the same name and version."""

    def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
        return [event.payload["n"], *state]


def changed(folder: Path, projection: AnyProjection) -> bool:
    """Whether who attaches this code here is told that other code began the states."""
    return describe(folder, projection, "g", "tests:Numbers")


async def test_a_pulled_state_says_which_code_folded_it(log: EventLog, tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "depot"))
    sent(depot, await folded(log, tmp_path / "a"))
    await taken(log, depot, tmp_path / "b")
    assert not changed(tmp_path / "b", Numbers())
    assert changed(tmp_path / "b", Other())
    # Of several codes it is told that is not the one that is here.
    here = tmp_path / "c"
    describe(here, Other(), "g", "tests:Numbers")
    await add(log, 300, 301)
    with ProjectionEngine(log, here) as engine:
        engine.register("numbers", Other())
        await engine.catch_up("numbers")
    done, said = await taken(log, depot, here, load=lambda reference: Other())
    assert (done.taken, done.left, len(said)) == (0, 3, 1)
    assert not changed(here, Other()), "nothing of the push was taken"
    open_stored_projection(here, "numbers", load=load).files()[0].unlink()
    done, _ = await taken(log, depot, here, load=lambda reference: Other())
    assert (done.taken, done.left) == (1, 2)
    assert changed(here, Other())


async def test_what_a_process_says_that_attaches_during_a_pull_stays(
    log: EventLog, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(depot, await folded(log, tmp_path / "a"))
    land = landing._land

    def other_attaches(*arguments: Any) -> Any:
        describe(tmp_path / "b", Numbers(), "its group", "other:Numbers")
        return land(*arguments)

    monkeypatch.setattr(landing, "_land", other_attaches)
    done, _ = await taken(log, depot, tmp_path / "b")
    assert done.taken == 3
    about = open_stored_projection(tmp_path / "b", "numbers", load=load).about
    assert (about.reference, about.group) == ("other:Numbers", "its group")
    assert about.code == fingerprint(Numbers())


async def test_code_that_a_push_names_is_not_what_later_commands_import(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    sent(depot, await folded(log, tmp_path / "a"))
    assert open_stored_projection(tmp_path / "a", "numbers", load=load).about.reference == "tests:Numbers"
    await taken(log, depot, tmp_path / "b")
    assert open_stored_projection(tmp_path / "b", "numbers", load=load).about.reference is None


async def test_a_push_of_an_older_release_says_no_code(log: EventLog, tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "depot"))
    shipment = sent(depot, await folded(log, tmp_path / "a"))

    def older(data: bytes) -> bytes:
        fields = orjson.loads(data)
        del fields["code"], fields["unmerged"]
        return orjson.dumps(fields)

    damage(depot, f"{shipment.place}/{MANIFEST}", older)
    done, _ = await taken(log, depot, tmp_path / "b")
    assert done.taken == 3
    assert not changed(tmp_path / "b", Other())


async def test_a_push_without_its_manifest_is_not_there(log: EventLog, depot: Depot, tmp_path: Path) -> None:
    stored = await folded(log, tmp_path / "a")
    older = sent(depot, stored)
    await add(log, 300, 310)
    newer = sent(depot, await folded(log, tmp_path / "a"))
    depot.remove(f"{newer.place}/{MANIFEST}")
    done, said = await taken(log, depot, tmp_path / "b")
    assert (done.events, said) == (300, [])
    depot.remove(f"{older.place}/{MANIFEST}")
    with pytest.raises(SnapshotError, match=r"no push of numbers in .* that can be taken"):
        await taken(log, depot, tmp_path / "c")
    assert not (tmp_path / "c").exists()


async def test_a_push_that_fails_on_its_way_leaves_no_manifest(
    log: EventLog, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await folded(log, tmp_path / "a")
    send, calls = Depot.send, []

    def failing(self: Depot, local: Path, place: str) -> None:
        calls.append(place)
        if len(calls) == 3:
            raise SnapshotError("the network is gone")
        send(self, local, place)

    monkeypatch.setattr(Depot, "send", failing)
    with pytest.raises(SnapshotError, match="network is gone"):
        sent(depot, stored)
    assert depot.names(calls[0].rpartition("/")[0]) == [place.rpartition("/")[2] for place in calls[:2]]


@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "other", "manifest", "sizes", "moved"])
async def test_what_is_damaged_is_said_and_an_older_push_is_taken(
    log: EventLog, depot: Depot, tmp_path: Path, how: str
) -> None:
    stored = await folded(log, tmp_path / "a")
    older = sent(depot, stored)
    await add(log, 300, 400)
    newer = sent(depot, await folded(log, tmp_path / "a"))
    first, second = (f"{newer.place}/{file.name}.zst" for file in newer.files[:2])
    manifest = f"{newer.place}/{MANIFEST}"
    if how == "flipped":
        damage(depot, first, lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif how == "cut":
        damage(depot, first, lambda data: data[:-1])
    elif how == "gone":
        depot.remove(first)
    elif how == "other":
        other = depot.read(second)
        assert other is not None
        depot.write(first, other)
    elif how == "manifest":
        damage(depot, manifest, lambda data: data[: len(data) // 2])
    elif how == "sizes":
        size = newer.files[0].bytes
        wrong = b'"bytes": %d' % (size - 1)
        damage(depot, manifest, lambda data: data.replace(b'"bytes": %d' % size, wrong, 1))
    else:
        damage(depot, manifest, lambda data: data.replace(newer.push.encode(), older.push.encode()))
    done, said = await taken(log, depot, tmp_path / "b")
    whole = how in ("manifest", "moved")
    assert done.taken == 3
    assert done.events == 300 if whole else 300 < done.events < 400
    assert said
    assert all("passed over" in line and newer.push in line for line in said)
    assert await engine_rows(log, tmp_path / "b") == rows(0, 400)


@pytest.mark.parametrize("said_bytes", [256 << 20, 1 << 20])
async def test_a_push_that_would_fill_the_disk_is_passed_over(
    log: EventLog, tmp_path: Path, said_bytes: int
) -> None:
    depot = Depot(str(tmp_path / "depot"))
    stored = await folded(log, tmp_path / "a")
    sent(depot, stored)
    await add(log, 300, 400)
    newer = sent(depot, await folded(log, tmp_path / "a"))
    bomb = zstandard.ZstdCompressor().compress(bytes(256 << 20))
    file = newer.files[0]
    depot.write(f"{newer.place}/{file.name}.zst", bomb)

    def claims(data: bytes) -> bytes:
        fields = orjson.loads(data)
        fields["files"][0] |= {
            "bytes": said_bytes,
            "packed_bytes": len(bomb),
            "sha256": hashlib.sha256(bomb).hexdigest(),
        }
        return orjson.dumps(fields)

    damage(depot, f"{newer.place}/{MANIFEST}", claims)
    done, said = await taken(log, depot, tmp_path / "b")
    assert done.taken == 3
    assert said
    assert all("passed over" in line for line in said)
    assert ("believed" in said[0]) == (said_bytes > 64 << 20)


def damage_row(path: Path) -> None:
    """What an upset disk does to one row; SQLite does not notice."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE row SET value = '[666]' WHERE key = (SELECT max(key) FROM row)")
        db.commit()


async def test_a_state_with_a_damaged_row_is_not_pushed_over_sound_ones(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    stored = await folded(log, tmp_path / "a")
    sound = sent(depot, stored)
    damage_row(stored.files()[-1])
    with pytest.raises(StateFileError, match="is damaged") as raised:
        sent(depot, stored)
    assert raised.value.message.startswith(f"{stored.files()[-1]}: the row ")
    assert raised.value.hint == "Fold it again: noesium project tests:Numbers --rebuild"
    done, said = await taken(log, depot, tmp_path / "b")
    assert (done, said) == (Pulled(1, 3, 300, 0), [])
    assert sound.push in [one.push for one in pushed(depot, "numbers", None, None, said.append)]


async def test_a_pushed_row_that_is_damaged_is_passed_over_though_its_file_is_what_the_manifest_says(
    log: EventLog, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await folded(log, tmp_path / "a")
    sent(depot, stored)
    await add(log, 300, 400)
    stored = await folded(log, tmp_path / "a")
    damage_row(stored.files()[-1])
    with monkeypatch.context() as unchecked:
        unchecked.setattr(StateFile, "verify", lambda file: None)
        newer = sent(depot, stored)
    done, said = await taken(log, depot, tmp_path / "b")
    assert done.taken == 3
    assert len(said) == 1
    assert newer.push in said[0]
    assert "is damaged" in said[0]
    assert await engine_rows(log, tmp_path / "b") == rows(0, 400)


async def engine_rows(log: EventLog, folder: Path) -> Any:
    said: list[str] = []
    with ProjectionEngine(log, folder, report=said.append) as engine:
        engine.register("numbers", Numbers())
        state = await engine.get_state("numbers")
    assert said == []
    return state


async def test_what_is_here_and_further_stays(log: EventLog, depot: Depot, tmp_path: Path) -> None:
    sent(depot, await folded(log, tmp_path / "a"))
    await add(log, 300, 360)
    await folded(log, tmp_path / "b")
    done, said = await taken(log, depot, tmp_path / "b")
    assert done == Pulled(1, 0, 0, 3)
    assert len(said) == 3
    assert all("it stays" in line for line in said)
    assert dict(open_stored_projection(tmp_path / "b", "numbers", load=load).rows()) == rows(0, 360)
    done, said = await taken(log, depot, tmp_path / "a")
    assert (done, said) == (Pulled(1, 0, 0, 3), []), "as far as the push: there is nothing to say"


async def test_a_file_here_that_is_damaged_or_behind_is_replaced(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    here = await folded(log, tmp_path / "b")
    await add(log, 300, 360)
    sent(depot, await folded(log, tmp_path / "a"))
    here.files()[0].write_bytes(b"no database at all")
    done, said = await taken(log, depot, tmp_path / "b")
    assert (done.taken, done.events, said) == (3, 360, [])
    assert dict(here.rows()) == rows(0, 360)


async def test_a_file_that_another_process_holds_is_left_to_it(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    here = await folded(log, tmp_path / "b")
    await add(log, 300, 360)
    sent(depot, await folded(log, tmp_path / "a"))
    held = here.files()[1]
    before = held.read_bytes()
    with locked(held):
        done, said = await taken(log, depot, tmp_path / "b")
    assert (done.taken, done.left, held.read_bytes()) == (2, 1, before)
    assert said == [f"{log.topology.events('demo')}/1 is left to the process that folds it."]


async def test_machines_push_what_they_have_and_each_partition_comes_from_the_furthest(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    here = await folded(log, tmp_path / "a")
    await add(log, 300, 360)
    there = await folded(log, tmp_path / "b")
    here.files()[0].unlink()
    there.files()[2].unlink()
    sent(depot, there)
    sent(depot, here)  # the last one to push is not the furthest
    done, said = await taken(log, depot, tmp_path / "c")
    assert (done.taken, said) == (3, [])
    got = {
        key: len(numbers)
        for key, numbers in open_stored_projection(tmp_path / "c", "numbers", load=load).rows()
    }
    want = {key: len(numbers) for key, numbers in [*here.rows(), *there.rows()]}
    assert got == {key: max(want[key], got[key]) for key in want}
    assert 300 < done.events < 360


async def test_a_topic_that_was_made_anew_takes_nothing_of_the_old_one(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    sent(depot, await folded(log, tmp_path / "a"))
    other = await open_log(f"sqlite:///{tmp_path}/other.db?partitions=3", catalogue=catalogue())
    try:
        with pytest.raises(SnapshotError, match="No push of numbers is of this log"):
            await taken(other, depot, tmp_path / "b")
        await add(other, 0, 30)
        said: list[str] = []
        with pytest.raises(SnapshotError, match="No push of numbers is of this log"):
            await pull(
                other,
                depot,
                tmp_path / "b",
                "numbers",
                version=None,
                verifier=None,
                load=load,
                report=said.append,
            )
        assert len(said) == 3
        assert all("deleted and made anew" in line for line in said)
    finally:
        await other.close()


async def test_another_type_of_state_and_another_version_are_said(
    log: EventLog, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(depot, await folded(log, tmp_path / "a"))
    describe(tmp_path / "b", Numbers(), group_of(log, Numbers()), "tests:Numbers")
    monkeypatch.setattr("noesium_stream.projection.transfer.pull.StateCodec", lambda projection: _OtherShape)
    with pytest.raises(SnapshotError, match="No push of numbers is of this log"):
        await taken(log, depot, tmp_path / "b")
    monkeypatch.setattr(Numbers, "version", 2)
    done, said = await taken(log, depot, tmp_path / "b")
    assert said == ["tests:Numbers is version 2 here, and does not use v1."]
    describe(tmp_path / "c", Numbers(), group_of(log, Numbers()), "tests:Numbers")
    done, said = await taken(log, depot, tmp_path / "c")
    assert (done.version, done.taken) == (1, 3)
    assert said == ["Readers here take v2 of numbers, until this one is attached."]
    assert current_version(tmp_path / "c" / "numbers") == 2


class _OtherShape:
    shape = "another"


async def test_the_newest_version_is_taken_unless_another_one_is_named(
    log: EventLog, depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(depot, await folded(log, tmp_path / "a"))
    monkeypatch.setattr(Numbers, "version", 2)
    await folded(log, tmp_path / "a")
    sent(depot, open_stored_projection(tmp_path / "a", "numbers", 2, load=load))
    done, _ = await taken(log, depot, tmp_path / "b")
    assert done.version == 2
    done, _ = await taken(log, depot, tmp_path / "c", version=1)
    assert done.version == 1
    with pytest.raises(SnapshotError, match="no push of numbers v3 in"):
        await taken(log, depot, tmp_path / "d", version=3)


# -- signatures ------------------------------------------------------------------------------------------


async def test_with_keys_only_what_a_known_key_has_signed_is_taken(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    stored = await folded(log, tmp_path / "a")
    sent(depot, stored, ANN)
    await add(log, 300, 310)
    stored = await folded(log, tmp_path / "a")
    unsigned, foreign = sent(depot, stored), sent(depot, stored, EVE)
    done, said = await taken(log, depot, tmp_path / "b", verifier=KNOWS_ANN)
    assert done.events == 300
    assert said == [
        f"{foreign.place} is refused: its signature the key 'eve' is not known here: it cannot be verified. "
        "It is passed over.",
        f"{unsigned.place} is refused: its signature is missing, and here public keys are configured. "
        "It is passed over.",
    ]
    with pytest.raises(SnapshotError, match="that can be taken"):
        await taken(log, depot, tmp_path / "c", verifier=Verifier({"bob": EVE.public_key}, required=True))


async def test_a_push_counts_only_by_a_key_that_speaks_for_projections(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    shipment = sent(depot, await folded(log, tmp_path / "a"), EVE)
    for name, refused in (("eve", True), ("agent:projections", False)):
        verifier = Verifier({"eve": TrustedKey("eve", EVE.public_key, frozenset({name}))}, required=True)
        if refused:
            with pytest.raises(SnapshotError, match="that can be taken"):
                await taken(log, depot, tmp_path / name, verifier=verifier)
        else:
            done, said = await taken(log, depot, tmp_path / "b", verifier=verifier)
            assert (done.events, said) == (300, [])
    assert shipment.files


@pytest.mark.parametrize("field", ["sha256", "topic", "cursor", "pushed", "reference", "key", "value"])
async def test_no_part_of_a_signed_manifest_can_be_changed(log: EventLog, tmp_path: Path, field: str) -> None:
    depot = Depot(str(tmp_path / "depot"))
    shipment = sent(depot, await folded(log, tmp_path / "a"), ANN)

    def change(data: bytes) -> bytes:
        fields = orjson.loads(data)
        where = {**dict.fromkeys(("sha256", "topic", "cursor"), fields["files"][0])}
        part = where.get(field, fields["signature"] if field in ("key", "value") else fields)
        old = part[field]
        part[field] = old + 1 if isinstance(old, int) else ("b" if old[0] != "b" else "c") + old[1:]
        return orjson.dumps(fields)

    damage(depot, f"{shipment.place}/{MANIFEST}", change)
    with pytest.raises(SnapshotError, match="that can be taken"):
        await taken(log, depot, tmp_path / "b", verifier=KNOWS_ANN)


# -- pruning ---------------------------------------------------------------------------------------------


async def test_old_pushes_go_and_those_of_other_machines_stay(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    mine, yours = await folded(log, tmp_path / "a"), await folded(log, tmp_path / "b")
    mine.files()[0].unlink()
    for path in yours.files()[1:]:
        path.unlink()
    your_push = sent(depot, yours)
    my_pushes = [sent(depot, mine) for _ in range(5)]
    assert prune(depot, my_pushes[-1], 3, CLOCK, None) == 2
    left = [your_push.push, *(shipment.push for shipment in my_pushes[-3:])]
    assert depot.names("numbers/v1") == sorted(left)
    done, said = await taken(log, depot, tmp_path / "c")
    assert (done.taken, said) == (3, [])
    assert prune(depot, my_pushes[-1], 3, CLOCK, None) == 0


async def test_the_furthest_push_of_a_partition_stays_however_old(log: EventLog, tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "depot"))
    behind = await folded(log, tmp_path / "a")
    await add(log, 300, 360)
    furthest = sent(depot, await folded(log, tmp_path / "b"))
    last = [sent(depot, behind) for _ in range(4)][-1]
    assert prune(depot, last, 2, CLOCK, None) == 3
    assert depot.names("numbers/v1") == [furthest.push, last.push]


async def test_what_was_broken_off_goes_after_a_day_and_what_cannot_be_verified_stays(
    log: EventLog, depot: Depot, tmp_path: Path
) -> None:
    stored = await folded(log, tmp_path / "a")
    broken_off, foreign = sent(depot, stored), sent(depot, stored)
    depot.remove(f"{broken_off.place}/{MANIFEST}")
    newest = [sent(depot, stored, ANN) for _ in range(2)][-1]
    assert prune(depot, newest, 1, CLOCK, KNOWS_ANN) == 1
    assert depot.names("numbers/v1") == [broken_off.push, foreign.push, newest.push]
    CLOCK.advance(25 * 3600)
    assert prune(depot, newest, 1, CLOCK, KNOWS_ANN) == 1
    assert depot.names("numbers/v1") == [foreign.push, newest.push]


# -- errors ----------------------------------------------------------------------------------------------


def test_an_unknown_scheme_and_a_missing_package_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="the scheme tape is not known"):
        Depot("tape://reel/1")

    def missing(*args: object, **options: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("noesium_stream.projection.transfer.object_store.url_to_fs", missing)
    with pytest.raises(ConfigError, match="Install s3fs") as caught:
        Depot("s3://bucket/x")
    assert caught.value.hint == "pip install 'noesium-stream[s3]'"


async def test_a_bucket_that_is_not_there_is_said(log: EventLog, bucket: str, tmp_path: Path) -> None:
    depot = Depot("s3://not-there-at-all/x")
    stored = await folded(log, tmp_path / "a")
    for use in (partial(sent, depot, stored), partial(projections_in, depot)):
        with pytest.raises(SnapshotError, match="bucket does not exist") as caught:
            use()
        assert caught.value.hint == "Make it first, or correct the address."
    assert projections_in(Depot(f"s3://{bucket}/nothing/yet")) == []


async def test_a_store_that_does_not_answer_is_said(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(SnapshotError, match="Could not connect"):
        projections_in(Depot(f"s3://{bucket}/x"))
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "Make room"),
        (PermissionError(errno.EACCES, "Permission denied"), "Grant the right"),
        (RuntimeError("what no store should raise"), "Look whether"),
    ],
)
async def test_what_a_store_refuses_is_one_clear_error(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, hint: str
) -> None:
    stored = await folded(log, tmp_path / "a")
    depot = Depot(str(tmp_path / "depot"))

    def refuse(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.put_file", refuse)
    with pytest.raises(SnapshotError, match=r"depot/numbers/v1/.* cannot be written: ") as caught:
        sent(depot, stored)
    assert (caught.value.hint or "").startswith(hint)


async def test_no_state_is_nothing_to_push(log: EventLog, tmp_path: Path) -> None:
    describe(tmp_path / "a", Numbers(), group_of(log, Numbers()), "tests:Numbers")
    with pytest.raises(SnapshotError, match="has no state yet"):
        sent(Depot(str(tmp_path / "depot")), open_stored_projection(tmp_path / "a", "numbers", load=load))
