"""An exported run is proven as it was written, and in no other way; what is wrong is named."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.client import Client
from noesium_stream.client.proof.checks import MAX_PROBLEMS, OfflineVerdict, verify_file
from noesium_stream.client.proof.export import export_run
from noesium_stream.client.proof.proof_file import MAX_LINE
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ConfigError, RunFailedError
from noesium_stream.event.record_proofs import PROOF, RecordSigner
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.log.open import open_log
from noesium_stream.worker import Worker
from tests.support.proofs import ANYTHING, KEYS, REQUIRED, SIGNERS, clerk, exported, rechained
from tests.support.reading import eventually, stored
from tests.support.tree_agents import Leaf, Root, calling

Lines = list[bytes]
Check = Callable[..., OfflineVerdict]
FLIPS = 40


async def _runs(folder: Path, name: str, **options: Any) -> list[Path]:
    logs = {key: await open_log(f"memory://{name}", **({"signer": SIGNERS[key], **options})) for key in KEYS}
    try:
        return await exported(logs, folder, ("run", "other"), signed="verifier" in options)
    finally:
        for log in logs.values():
            await log.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return asyncio.run(_runs(tmp_path_factory.mktemp("runs"), "proofs", verifier=REQUIRED))


@pytest.fixture
def lines(files: list[Path]) -> Lines:
    return files[0].read_bytes().splitlines(keepends=True)


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def checked(lines: Lines, verifier: Verifier = REQUIRED, run_id: str | None = None) -> OfflineVerdict:
        path = tmp_path / "file"
        path.write_bytes(b"".join(lines))
        return verify_file(path, verifier, run_id)

    return checked


def named(verdict: OfflineVerdict) -> str:
    """The first problem."""
    assert not verdict.is_proven
    return ": ".join(verdict.problems[0])


def index_of(lines: Lines, event_type: str) -> int:
    """The line of a record of this type."""
    said = base64.b64encode(event_type.encode())
    return next(at for at, line in enumerate(lines) if said in line)


def edited(line: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(line), **fields}, separators=(",", ":")).encode() + b"\n"


def test_it_says_who_asked_who_approved_what_was_done_and_how_it_ended(files: list[Path]) -> None:
    verdict = verify_file(files[0], REQUIRED)
    assert verdict.problems == []
    assert [(said.what, said.by, said.key) for said in verdict.findings.said] == [
        ("asked", "alice", "alice-1"),
        ("approved", "bob", "bob-1"),
    ]
    assert verdict.findings.said[1].about == "Refund order 7?"
    [effect] = verdict.findings.done.values()
    assert (effect.name, effect.kind, effect.outcome) == ("pay", "external", "done")
    assert verdict.findings.status == "completed"
    assert verdict.signed == {"clerk-1": verdict.records}
    assert verdict.senders == {"alice-1": 1, "bob-1": 1}
    assert (verdict.unsigned, verdict.exporter) == (0, "ops-1")


def test_a_flipped_bit_is_found_wherever_it_is_and_its_line_is_named(lines: Lines, check: Check) -> None:

    def wrong(lines: Lines) -> str:
        try:
            return named(check(lines))
        except ConfigError as error:
            return "line 1" if "first line was changed" in error.message else error.message

    chance = random.Random(20)
    for at, line in enumerate(lines):
        places = {0, len(line) - 1, *(chance.randrange(len(line)) for _ in range(FLIPS))}
        for place in places:
            flipped = bytearray(line)
            flipped[place] ^= 1 << chance.randrange(8)
            problem = wrong([*lines[:at], bytes(flipped), *lines[at + 1 :]])
            assert problem.startswith(f"line {at + 1}"), (problem, place, flipped)


def test_a_flipped_bit_of_a_record_is_found_without_hashes_and_without_an_exporter(
    lines: Lines, check: Check
) -> None:
    """Whoever changes a record can write new hashes; the record's own signature is another matter."""
    chance = random.Random(21)
    at = index_of(lines, "approval.answered")
    found = json.loads(lines[at])
    value = base64.b64decode(found["value"])
    for place in {0, len(value) - 1, *(chance.randrange(len(value)) for _ in range(FLIPS))}:
        flipped = bytearray(value)
        flipped[place] ^= 1 << chance.randrange(8)
        changed = edited(lines[at], value=base64.b64encode(flipped).decode())
        problem = named(check(rechained([*lines[:at], changed, *lines[at + 1 :]])))
        assert problem.startswith(f"line {at + 1}, record {at - 1} (approval.answered): its signature")
    for number, (name, text) in enumerate(found["headers"]):
        if name == "noesium_commit":
            continue
        data = base64.b64decode(text)
        other = [name, base64.b64encode(data[:-1] + bytes([data[-1] ^ 1])).decode()]
        headers = [*found["headers"][:number], other, *found["headers"][number + 1 :]]
        changed = edited(lines[at], headers=headers)
        assert named(check(rechained([*lines[:at], changed, *lines[at + 1 :]]))).startswith(f"line {at + 1},")
    for field, changed_to in (("partition", found["partition"] + 1), ("key", "x"), ("topic", "noesium.dlq")):
        changed = edited(lines[at], **{field: changed_to})
        assert named(check(rechained([*lines[:at], changed, *lines[at + 1 :]]))).startswith(f"line {at + 1},")


@pytest.mark.parametrize("again", [lambda lines: lines, rechained])
def test_every_record_that_is_left_out_is_named(lines: Lines, check: Check, again: Any) -> None:
    last = index_of(lines, "run.completed")
    for at in range(1, last):
        problem = named(check(again([*lines[:at], *lines[at + 1 :]])))
        assert f"record {at - 1} is missing before it" in problem
    without = check(again([*lines[:last], *lines[last + 1 :]]))
    assert any(f"has no end behind record {last - 2}" in what for _, what in without.problems) or (
        again is not rechained
    )
    assert not without.is_proven


@pytest.mark.parametrize("again", [lambda lines: lines, rechained])
def test_two_records_in_the_wrong_order_are_named(lines: Lines, check: Check, again: Any) -> None:
    last = index_of(lines, "run.completed")
    for at in range(1, last):
        swapped = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
        said = [what for _, what in check(again(swapped)).problems]
        assert f"record {at - 1} is missing before it" in said[0]
        assert f"stands behind record {at}" in said[1]


def test_a_record_of_another_run_or_twice_is_named(files: list[Path], lines: Lines, check: Check) -> None:
    others = files[1].read_bytes().splitlines(keepends=True)
    for at in range(1, len(lines) - 2):
        inserted = rechained([*lines[:at], others[at], *lines[at:]])
        assert named(check(inserted)).startswith(f"line {at + 1},")
        assert "of another run" in named(check(inserted))
        instead = rechained([*lines[:at], others[at], *lines[at + 1 :]])
        assert "of another run" in named(check(instead))
        twice = named(check(rechained([*lines[: at + 1], *lines[at:]])))
        assert f"it stands behind record {at - 1}" in twice


def test_a_file_that_was_cut_off_is_not_proven(lines: Lines, check: Check) -> None:
    for count in range(1, len(lines)):
        assert not check(lines[:count]).is_proven
        assert not check([*lines[:count], lines[count][: len(lines[count]) // 2]]).is_proven
    with pytest.raises(ConfigError, match="is no exported run"):
        check([])


def test_an_edited_first_line_is_named(lines: Lines, check: Check) -> None:
    assert "line 1: the line was changed" in named(check([edited(lines[0], at=1), *lines[1:]]))
    for fields, said in (
        ({"run_id": "x"}, "it is of another run"),
        ({"namespace": "other"}, "is no journal of the agent"),
        ({"agent_type": "other"}, "is no journal of the agent"),
    ):
        assert said in named(check(rechained([edited(lines[0], **fields), *lines[1:]])))
    for fields in (
        {"format": "noesium-proof/2"},
        {"at": -1},
        {"at": True},
        {"run_id": "\ud800"},
        {"more": 1},
    ):
        with pytest.raises(ConfigError, match="is no exported run"):
            check([edited(lines[0], **fields), *lines[1:]])


def test_it_must_be_the_run_that_is_asked_for(lines: Lines, check: Check) -> None:
    run_id = json.loads(lines[0])["run_id"]
    assert check(lines, run_id=run_id[:8]).is_proven
    assert "the file is of the run" in named(check(lines, run_id="0" * 32))


def test_keys_that_are_not_trusted_prove_nothing(lines: Lines, check: Check) -> None:
    for missing in ("clerk-1", "alice-1", "bob-1", "ops-1"):
        known = {name: key for name, key in KEYS.items() if name != missing}
        assert f"the key '{missing}' is not known here" in named(check(lines, Verifier(known)))
    others = {name: TrustedKey(name, SIGNERS["mallory-1"].public_key) for name in ("clerk-1",)}
    assert "its signature" in named(check(lines, Verifier({**KEYS, **others})))
    wrong = TrustedKey("bob-1", SIGNERS["bob-1"].public_key, frozenset({"robert"}))
    assert "may not speak for 'bob'" in named(check(lines, Verifier({**KEYS, "bob-1": wrong})))
    wrong = TrustedKey("clerk-1", SIGNERS["clerk-1"].public_key, frozenset({"agent:other"}))
    assert "whose journal it is" in named(check(lines, Verifier({**KEYS, "clerk-1": wrong})))
    late = TrustedKey("bob-1", SIGNERS["bob-1"].public_key, frozenset({"bob"}), not_after_ms=1)
    assert "was valid until" in named(check(lines, Verifier({**KEYS, "bob-1": late})))


def signed(line: bytes, signer: Signer, headers: list[Any] | None = None) -> bytes:
    """A record with other headers, signed by somebody."""
    found = json.loads(line)
    pairs = found["headers"] if headers is None else headers
    own = [(name, base64.b64decode(text)) for name, text in pairs if name != PROOF]
    place = found["topic"], found["partition"], found["key"]
    [(_, proof)] = RecordSigner(signer).prove([(*place, own, base64.b64decode(found["value"]))])
    kept = [pair for pair in pairs if pair[0] != PROOF]
    return edited(line, headers=[*kept, [PROOF, base64.b64encode(proof).decode()]])


def test_an_agent_that_says_that_somebody_approved_is_not_believed(lines: Lines, check: Check) -> None:
    for kind in ("run.requested", "approval.answered"):
        at = index_of(lines, kind)
        headers = [pair for pair in json.loads(lines[at])["headers"] if pair[0] != "noesium_sender"]
        forged = signed(lines[at], SIGNERS["clerk-1"], headers)
        verdict = check(rechained([*lines[:at], forged, *lines[at + 1 :]]))
        assert "only the agent says who it was" in named(verdict)
        assert f"line {at + 1}," in named(verdict)
        headers = [pair for pair in headers if pair[0] != "noesium_source"]
        forged = signed(lines[at], SIGNERS["clerk-1"], headers)
        assert "only the agent says who it was" in named(
            check(rechained([*lines[:at], forged, *lines[at + 1 :]]))
        )


def test_a_record_that_somebody_else_signed_is_named(lines: Lines, check: Check) -> None:
    at = index_of(lines, "effect.completed")
    for signer, said in (("mallory-1", "is not known here"), ("alice-1", "whose journal it is")):
        forged = signed(lines[at], SIGNERS[signer])
        problem = named(check(rechained([*lines[:at], forged, *lines[at + 1 :]])))
        assert problem.startswith(f"line {at + 1}, record {at - 1} (effect.completed): its signature")
        assert said in problem


def test_a_proof_that_was_taken_off_is_unsigned_and_proves_nothing(lines: Lines, check: Check) -> None:
    at = index_of(lines, "effect.completed")
    headers = [pair for pair in json.loads(lines[at])["headers"] if pair[0] != PROOF]
    verdict = check(rechained([*lines[:at], edited(lines[at], headers=headers), *lines[at + 1 :]]))
    assert verdict.unsigned == 1
    assert "1 of" in named(verdict)
    assert "unsigned" in named(verdict)


def test_a_run_without_an_end_is_whole_if_an_owner_or_operator_signed_the_export(
    lines: Lines, check: Check
) -> None:
    """An export of an open run: the lines up to the approval, written anew and signed, or not."""
    at = index_of(lines, "effect.requested")
    count = at - 1
    for name, proven in (("ops-1", True), ("clerk-1", True), ("alice-1", False), (None, False)):
        tail = json.dumps({"records": count, "keys": [], "sha256": ""}).encode()
        open_run = rechained([*lines[:at], tail], name)
        verdict = check(open_run)
        assert verdict.is_proven == proven, verdict.problems
        assert verdict.findings.status is None
        if not proven:
            assert "it was open, or the end was cut off" in named(verdict)


def test_an_export_without_a_record_proves_nothing_whoever_signed_it(lines: Lines, check: Check) -> None:
    tail = json.dumps({"records": 0, "keys": [], "sha256": ""}).encode()
    verdict = check(rechained([lines[0], tail], "ops-1"))
    assert verdict.exporter == "ops-1"
    assert "holds no record" in named(verdict)


def test_a_run_that_nobody_signed_is_told_to_be_unsigned(tmp_path: Path) -> None:
    async def unsigned() -> Path:
        return (await _runs(tmp_path, "unsigned", signer=None))[0]

    verdict = verify_file(asyncio.run(unsigned()), REQUIRED)
    assert verdict.unsigned == verdict.records
    assert [said.key for said in verdict.findings.said] == [None, None]
    assert verdict.findings.status == "completed"
    assert [where for where, _ in verdict.problems] == ["the file"]


HOSTILE = [
    b"\n",
    b"null\n",
    b"[]\n",
    b"{}\n",
    b"[" * 100_000 + b"\n",
    b'{"records":' + b"9" * 10_000 + b',"keys":[]}\n',
    b'{"records":1e400,"keys":[]}\n',
    b'{"key":"\\ud800","signature":"x"}\n',
    b'{"key":null,"signature":[]}\n',
    b"\xff\xfe\x00\n",
    b"\x00" * 1000 + b"\n",
    b"x" * (MAX_LINE + 10),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_whatever_a_line_holds_it_is_named(lines: Lines, check: Check, number: int) -> None:
    hostile = HOSTILE[number]
    assert named(check([*lines[:3], hostile, *lines[3:]])).startswith("line 4")
    assert not check([*lines, hostile]).is_proven
    with pytest.raises(ConfigError, match="is no exported run"):
        check([hostile, *lines])


def test_whatever_a_field_holds_its_line_is_named(lines: Lines, check: Check) -> None:
    values: list[Any] = [None, True, -1, 1e300, 2**70, "", "\ud800", "é", [], [[]], [["a"]], [["a", "?"]], {}]
    for field in json.loads(lines[3]):
        if field == "sha256":
            continue
        for value in values:
            changed = rechained([*lines[:3], edited(lines[3], **{field: value}), *lines[4:]])
            assert named(check(changed)).startswith("line 4"), (field, value)


def test_problems_are_bounded(lines: Lines, check: Check) -> None:
    verdict = check([*lines[:2], *[b"{}\n"] * (MAX_PROBLEMS + 50), *lines[2:]])
    assert len(verdict.problems) == MAX_PROBLEMS
    assert verdict.more >= 50


async def test_a_run_whose_command_was_deferred_and_forwarded_is_proven(tmp_path: Path) -> None:
    """It is in the next generation of the agent's topics; the proof is of the inbox where it came in."""
    logs = {
        key: await open_log("memory://grown?partitions=2", signer=SIGNERS[key], verifier=REQUIRED)
        for key in KEYS
    }
    log, agent = logs["clerk-1"], clerk()
    options: Any = {"home": tmp_path, "policy": ANYTHING}
    journal = log.topology.journal("clerk")
    newer = type("Newer", (agent,), {"version": "2.0.0"})

    async def has(event_type: str, count: int) -> bool:
        return len(await stored(log, journal, types=(event_type,))) == count

    async with Client(logs["alice-1"], agent_id="alice") as alice, Client(logs["ops-1"]) as ops:
        async with Worker(log, [agent], **options):
            run = await alice.start("clerk", {"order": 2}, version="^2")
            await eventually(lambda: has("request.parked", 1))
            await ops.grow("clerk", 5)
            await eventually(lambda: has("partition.outgrown", 2))
        async with Worker(log, [newer], **options):
            await eventually(lambda: run.approvals())
            await run.cancel()
            assert [event.event_type async for event in run.events()][-1] == "run.cancelled"
        await export_run(run, tmp_path / "file", SystemClock())
    verdict = verify_file(tmp_path / "file", REQUIRED)
    assert verdict.problems == []
    assert verdict.senders == {"alice-1": 2}
    lines = (tmp_path / "file").read_bytes().splitlines()
    assert json.loads(lines[1])["topic"] == f"{journal}.g2"
    for one in logs.values():
        await one.close()


async def test_a_run_that_has_cancelled_one_that_it_called_is_proven(tmp_path: Path) -> None:
    """The request is what the run has sent: nobody else has signed it, and it says nothing of the run."""
    signer = Signer(Ed25519PrivateKey.generate(), "tree-1")
    names = frozenset({"agent:root", "agent:leaf"})
    verifier = Verifier({**KEYS, "tree-1": TrustedKey("tree-1", signer.public_key, names)}, required=True)
    url = "memory://tree"
    alice = await open_log(url, signer=SIGNERS["alice-1"], verifier=verifier)
    log = await open_log(url, signer=signer, verifier=verifier)
    options: Any = {"home": tmp_path, "policy": ANYTHING}
    async with Client(alice, agent_id="alice") as client, Worker(log, [Root, Leaf], **options):
        run = await client.start("root", calling("leaf", ending="fails"))
        with pytest.raises(RunFailedError):
            await run.result()
        await export_run(run, tmp_path / "file", SystemClock())
    verdict = verify_file(tmp_path / "file", verifier)
    assert verdict.problems == []
    assert [said.what for said in verdict.findings.said] == ["asked"]
    for one in (alice, log):
        await one.close()
