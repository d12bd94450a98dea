"""project, state, projections, dlq and snapshot as real processes on the embedded log."""

from __future__ import annotations

import base64
import json
import signal
import sqlite3
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.log.port import Position
from tests.support.command import Running
from tests.support.counting import SOURCE, TOPIC, Counting, sums

SUMS = "counts:Sums"
HUNDRED = range(100)


@pytest.fixture
def folder(tmp_path: Path) -> Counting:
    folder = Counting(tmp_path)
    folder.add(HUNDRED)
    return folder


def error_of(folder: Counting, *args: str, code: int = 1) -> str:
    """The first line of a command's error; it has to be one clear error without a traceback."""
    done = folder.run(*args)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return errors[0]


def catches_up(folder: Counting, expected: dict[str, int], process: Running) -> None:
    process.wait_for(lambda _: json.loads(folder.run("state", "sums", "--json").stdout or "{}") == expected)


# -- project ---------------------------------------------------------------------------------------------


def test_once_catches_up_and_ends_and_the_state_is_read_without_the_code(folder: Counting) -> None:
    done = folder.run("project", SUMS, "--once")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "sums v1: 100 events in 4 partitions\n"
    (folder.path / "counts.py").unlink()
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)
    assert folder.ok("state", "sums", "k7") == f"{sums(HUNDRED)['k7']}\n"
    assert folder.ok("state", "sums").splitlines()[0] == f"k0\t{sums(HUNDRED)['k0']}"


def test_it_follows_and_sigterm_ends_it_with_all_written(folder: Counting) -> None:
    with folder.running("project", SUMS) as process:
        said = process.wait_for_error_line("Ctrl-C ends it")
        assert said.startswith(f"sums v1: folds {folder.url} into {folder.path}")
        catches_up(folder, sums(HUNDRED), process)
        folder.add(range(100, 150))
        catches_up(folder, sums(range(150)), process)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.err[-1] == "stopped"
        assert process.out == []


def test_other_code_of_the_same_version_is_noted_until_it_is_rebuilt(folder: Counting) -> None:
    noted = "the code of sums v1 has changed since this state was folded: count `version` up, or --rebuild"
    for _ in range(2):
        assert "code" not in folder.run("project", SUMS, "--once").stderr
    folder.change("class BadName", "# a comment, and another class\n\n\nclass BadName")
    assert "code" not in folder.run("project", SUMS, "--once").stderr
    folder.change('return state + event.payload["n"]', 'return state + 2 * event.payload["n"]')
    for _ in range(2):
        done = folder.run("project", SUMS, "--once")
        assert (done.returncode, done.stderr.splitlines().count(noted)) == (0, 1)
    with folder.running("project", SUMS) as process:
        process.wait_for_error_line(noted)
    assert noted not in folder.run("project", SUMS, "--rebuild").stderr
    assert folder.json("state", "sums", "--json") == {key: 2 * n for key, n in sums(HUNDRED).items()}
    assert "code" not in folder.run("project", SUMS, "--once").stderr


def test_ctrl_c_ends_it_too(folder: Counting) -> None:
    with folder.running("project", SUMS) as process:
        catches_up(folder, sums(HUNDRED), process)
        process.signal(signal.SIGINT)
        assert process.wait() == 130


def test_two_processes_share_one_folder_and_one_is_killed(folder: Counting) -> None:
    with folder.running("project", SUMS) as first, folder.running("project", SUMS) as second:
        for process in (first, second):
            process.wait_for_error_line("Ctrl-C ends it")
        catches_up(folder, sums(HUNDRED), first)
        first.signal(signal.SIGKILL)
        first.wait()
        folder.add(range(100, 200))
        catches_up(folder, sums(range(200)), second)
        second.signal(signal.SIGTERM)
        assert second.wait() == 0
    listed = folder.json("projections", "--json")
    assert [(one["events"], one["lag_events"]) for one in listed] == [(200, 0)]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nothing_here:Sums", "There is no module 'nothing_here'."),
        ("counts", "counts is no projection."),
        ("counts:Nobody", "counts:Nobody is no projection."),
        ("counts:NOTHING", "counts:NOTHING is no projection."),
        ("counts:", "counts: is no projection."),
        (":Sums", "':Sums' names no module."),
        (".counts:Sums", "'.counts:Sums' names no module."),
        ("broken:Sums", "The module 'broken' cannot be imported: SyntaxError"),
        ("counts:Abstract", "counts:Abstract cannot be made:"),
    ],
)
def test_a_reference_to_no_projection_is_bad_input(folder: Counting, reference: str, said: str) -> None:
    (folder.path / "broken.py").write_text("class Sums(:\n")
    folder.change("NOTHING = 7", "NOTHING = 7\n\n\nclass Abstract(BaseProjection[int]):\n    name = 'x'\n")
    assert error_of(folder, "project", reference, code=2).startswith(f"error: {said}")
    assert not (folder.path / "home").exists()


def test_topics_that_do_not_match_are_said_and_nothing_is_made(folder: Counting) -> None:
    folder.change('topics = ("events.*",)', 'topics = ("event.*",)')
    for option in ("--once", "--rebuild"):
        assert error_of(folder, "project", SUMS, option) == (
            "error: no topic matches event.*; there are: events.demo."
        )
    assert folder.run("state", "sums").returncode == 2
    with folder.running("project", SUMS) as process:
        process.wait_for_error_line("no topic matches event.*; there are: events.demo")
        process.wait_for_error_line("Ctrl-C ends it")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_one_topic_that_does_not_match_is_said_and_the_others_are_folded(folder: Counting) -> None:
    folder.change('topics = ("events.*",)', 'topics = ("events.*", "event.demo")')
    done = folder.run("project", SUMS, "--once")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "no topic matches event.demo; there are: events.demo",
        "sums v1: 100 events in 4 partitions",
    ]


def test_rows_that_never_come_are_said(folder: Counting) -> None:
    folder.change('return state + event.payload["n"]', 'state + event.payload["n"]')
    done = folder.run("project", SUMS, "--once")
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        [
            "sums v1: 100 events in 4 partitions",
            "  there is no row: `key` or `apply` has returned None for all of them; is a `return` missing?",
        ],
    )


def test_an_event_type_that_nothing_has_is_said_with_the_one_that_was_meant(folder: Counting) -> None:
    folder.change(
        'topics = ("events.*",)', 'topics = ("events.*",)\n    event_types = ("demo.", "demo.countd")'
    )
    said, folded = folder.run("project", SUMS, "--once").stderr.splitlines()
    assert said == (
        "no known event has the type demo.countd: did you mean demo.counted? "
        "name the class of your own in `events`"
    )
    assert folded == "sums v1: 100 events in 4 partitions"


BROKEN_OFF = """        if event.payload["n"] == 700:
            os = __import__("os")
            os.kill(os.getpid(), SIGNAL)
        if event.payload["n"] < 0:
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("option", ["--once", "--rebuild", "--export"])
def test_work_that_is_broken_off_does_not_end_as_if_it_were_done(
    folder: Counting, number: signal.Signals, code: int, option: str
) -> None:
    folder.add(range(100, 20_000))
    folder.change('        if event.payload["n"] < 0:\n', BROKEN_OFF.replace("SIGNAL", str(int(number))))
    target = ("sums.jsonl",) if option == "--export" else ()
    done = folder.run("project", SUMS, option, *target)
    assert done.returncode == code, done.stderr
    assert "events in 4 partitions" not in done.stderr
    assert not (folder.path / "sums.jsonl").exists()
    folder.write(SOURCE)
    folder.ok("project", SUMS, "--once")
    assert folder.json("state", "sums", "--json") == sums(range(20_000))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_a_rebuild_has_taken_over_changes_nothing(
    folder: Counting, number: signal.Signals
) -> None:
    (folder.path / "counts.py").write_text(
        f"""{SOURCE}
import os
import noesium_stream.cli.commands.projections.project as command

take_over = command.rebuild


async def rebuild(*args, **kwargs):
    built = await take_over(*args, **kwargs)
    os.kill(os.getpid(), {int(number)})
    return built


command.rebuild = rebuild
"""
    )
    done = folder.run("project", SUMS, "--rebuild")
    assert (done.returncode, done.stderr) == (0, "sums v1: 100 events in 4 partitions\n")
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("option", ["--once", "--rebuild"])
def test_a_signal_while_the_log_is_closed_changes_nothing(
    folder: Counting, number: signal.Signals, option: str
) -> None:
    (folder.path / "counts.py").write_text(
        f"""{SOURCE}
import os
from noesium_stream.log.embedded.log import EmbeddedLog

close = EmbeddedLog.close


async def closing(log):
    await close(log)
    os.kill(os.getpid(), {int(number)})


EmbeddedLog.close = closing
"""
    )
    done = folder.run("project", SUMS, option)
    assert (done.returncode, done.stderr) == (0, "sums v1: 100 events in 4 partitions\n")


def test_two_folders_share_the_partitions_and_both_say_so(folder: Counting) -> None:
    with folder.running("project", SUMS, "--state", "one") as first:
        first.wait_for(lambda _: len(list((folder.path / "one").rglob("*.state"))) == 4)
        with folder.running("project", SUMS, "--state", "two") as second:
            said = second.wait_for_error_line("sums v1: shares ")
            assert said.startswith("sums v1: shares 2 of 4 partitions with ")
            assert said.endswith(f"/{first.pid}")
            for name, other in (("one", second), ("two", first)):
                for args in (("state", "sums"), ("projections",)):
                    stderr = folder.run(*args, "--state", name).stderr
                    assert stderr.startswith("sums v1: 2 of 4 partitions are here; the others: "), stderr
                    assert stderr.endswith(f"/{other.pid}\n")


def test_one_folder_that_has_all_says_nothing_and_a_part_is_named(folder: Counting) -> None:
    with folder.running("project", SUMS) as first, folder.running("project", SUMS) as second:
        for process in (first, second):
            process.wait_for_error_line("Ctrl-C ends it")
        catches_up(folder, sums(HUNDRED), first)
        assert folder.run("projections").stderr == ""
        assert folder.run("state", "sums").stderr == ""
    folder.files()[0].unlink()
    folder.env["NOESIUM_LOG"] = f"sqlite:///{folder.path}/log.db?partitions=4"
    done = folder.run("state", "sums")
    assert "3 of 4 partitions are here; the others: " in done.stderr
    (folder.path / "log.db").rename(folder.path / "away.db")
    done = folder.run("state", "sums")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_projection_that_does_not_say_what_it_is_leaves_the_others_readable(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    folder.ok("project", "counts:Total", "--once")
    (folder.states / "sums" / "v1" / "projection.json").write_text("{")
    done = folder.run("projections")
    assert done.returncode == 0
    assert "total" in done.stdout
    assert "projection.json cannot be read" in done.stderr
    listed = folder.run("dlq", "list")
    assert listed.returncode == 0
    assert "projection.json cannot be read" in listed.stderr
    said = folder.run("state", "sums")
    assert said.returncode == 1
    assert "noesium project MODULE:NAME" in said.stderr
    folder.ok("project", SUMS, "--once")
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)


def test_a_letter_of_an_unknown_event_says_what_to_declare(folder: Counting) -> None:
    folder.change("events = (Counted,)", "events = ()")
    advice = "Name the class of demo.counted in the projection's `events = (…)`"
    done = folder.run("project", SUMS, "--once")
    assert done.returncode == 0
    assert advice in done.stderr
    assert advice in folder.run("dlq", "list").stderr
    first = folder.json("dlq", "list", "--json")[0]["position"]
    assert advice in folder.run("dlq", "show", "sums", first).stderr


def test_a_bad_name_is_said(folder: Counting) -> None:
    assert error_of(folder, "project", "counts:BadName", code=2) == (
        "error: BadName.name is 'Bad Name', not a name of a projection."
    )


def test_topics_that_are_a_plain_text_are_bad_input(folder: Counting) -> None:
    folder.change('topics = ("events.*",)', 'topics = ("events.*")')
    done = folder.run("project", SUMS, "--once")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: Sums.topics is a plain text: 'events.*'.",
        "  Declare topics = ('events.*',).",
    ]


def test_options_that_do_not_go_together_are_refused_before_anything_is_done(folder: Counting) -> None:
    assert "--verify goes with --rebuild" in error_of(folder, "project", SUMS, "--verify", code=2)
    assert "sums.txt names no format" in error_of(folder, "project", SUMS, "--export", "sums.txt", code=2)
    assert "'sometimes' is not one of" in error_of(folder, "project", SUMS, "--on-error", "sometimes", code=2)
    assert not (folder.path / "home").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("project", SUMS, "--once"),
        ("projections",),
        ("snapshot", "pull", "somewhere", "sums"),
        ("dlq", "redrive", "sums"),
    ],
)
def test_a_log_that_is_not_there_is_not_made(folder: Counting, args: tuple[str, ...]) -> None:
    assert "There is no log at sqlite:///typo.db yet." in error_of(
        folder, *args, "--log", "sqlite:///typo.db", code=3
    )
    assert not (folder.path / "typo.db").exists()


def test_a_kafka_that_is_not_there_is_said(folder: Counting) -> None:
    said = error_of(folder, "project", SUMS, "--once", "--log", "kafka://127.0.0.1:1", code=3)
    assert "127.0.0.1:1" in said


def test_state_files_of_another_process_are_busy(folder: Counting) -> None:
    with folder.running("project", SUMS) as process:
        catches_up(folder, sums(HUNDRED), process)
        assert "is being written by another process" in error_of(folder, "project", SUMS, "--once")
        said = error_of(folder, "project", SUMS, "--rebuild")
        assert said.startswith(
            "error: sums v1 cannot be rebuilt: its state is being written by another process."
        )
        compared = folder.run("project", SUMS, "--rebuild", "--verify")
        assert (compared.returncode, compared.stderr.splitlines()) == (
            0,
            [
                "10 rows are the same",
                "sums v1: 100 events in 4 partitions",
                "sums v1 is followed by another process: its state, which is the same, stays",
            ],
        )
        exported = folder.run("project", SUMS, "--export", "sums.jsonl")
        assert (exported.returncode, exported.stderr.splitlines()) == (
            0,
            [
                "sums v1 is followed by another process: it is exported as it is, not caught up here",
                "10 rows in sums.jsonl",
            ],
        )
        lines = [json.loads(line) for line in (folder.path / "sums.jsonl").read_text().splitlines()]
        assert {line["key"]: line["state"] for line in lines} == sums(HUNDRED)
        folder.add(range(100, 110))
        catches_up(folder, sums(range(110)), process)
    assert not (folder.states / ".rebuild" / "sums").exists()


def test_a_foreign_file_in_place_of_a_state_is_discarded_and_said(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    folder.files()[0].write_bytes(
        b"not a database, but a good deal of text that is longer than a header" * 99
    )
    done = folder.run("state", "sums", "--json")
    assert done.returncode == 1
    assert "demo-0.state: SQLite cannot read it" in done.stderr
    assert "  Fold it again: noesium project counts:Sums --rebuild" in done.stderr.splitlines()
    listed = folder.run("projections")
    assert listed.returncode == 0
    assert "It is made anew when the projection is attached." in listed.stderr
    done = folder.run("project", SUMS, "--once")
    assert done.returncode == 0
    assert "It is discarded; the events are folded again." in done.stderr
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)


def test_a_state_of_a_log_that_was_removed_is_not_called_up_to_date(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    for path in folder.path.glob("log.db*"):
        path.unlink()
    folder.add(range(7))
    listed = folder.run("projections", "--json")
    assert [one["lag_events"] for one in json.loads(listed.stdout)] == [7]
    assert listed.stderr.splitlines() == [
        f"sums v1: {TOPIC} was deleted and made anew, and its state is of the old one. "
        "It is folded again when the projection is attached."
    ]


def test_a_row_that_is_damaged_is_mended_by_what_is_said_of_it(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    with closing(sqlite3.connect(folder.files()[0])) as db:
        db.execute("UPDATE row SET value = '666' WHERE hex(key) LIKE '73%'")
        db.commit()
    for command in (
        ("state", "sums"),
        ("project", SUMS, "--export", "sums.db"),
        ("snapshot", "push", "depot"),
    ):
        done = folder.run(*command)
        assert (done.returncode, "is damaged" in done.stderr) == (1, True)
        assert done.stderr.splitlines()[-1] == "  Fold it again: noesium project counts:Sums --rebuild"
    folder.ok("project", SUMS, "--rebuild")
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)


@pytest.mark.parametrize("where", ["file", "folder"])
def test_a_state_folder_that_cannot_be_written_is_said(folder: Counting, where: str) -> None:
    place = folder.path / "place"
    if where == "file":
        place.write_text("in the way")
        assert "place" in error_of(folder, "project", SUMS, "--once", "--state", str(place), code=2)
        return
    place.mkdir()
    (place / "sums").write_text("in the way")
    assert "place/sums/v1 cannot be written" in error_of(
        folder, "project", SUMS, "--once", "--state", str(place)
    )


@pytest.mark.root
def test_a_read_only_folder_is_said_and_read(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once", "--state", "states")
    place = str(folder.path / "states")
    subprocess.run(["mount", "--bind", place, place], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        assert "cannot be written" in error_of(folder, "project", SUMS, "--once", "--state", "states")
        assert folder.json("state", "sums", "--json", "--state", "states") == sums(HUNDRED)
        folder.ok("snapshot", "push", "depot", "--state", "states")
        assert "cannot be written" in error_of(
            folder, "snapshot", "push", "states/inside", "--state", "states"
        )
    finally:
        subprocess.run(["umount", place], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.root
def test_a_full_disk_is_one_clear_error_and_nothing_is_lost(folder: Counting) -> None:
    disk = folder.path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        folder.ok("project", SUMS, "--once", "--state", "disk/states")
        folder.ok("project", SUMS, "--once")
        with pytest.raises(OSError, match="No space"):
            fill(disk / "ballast")
        folder.add(range(100, 200))
        for args in (
            ("project", SUMS, "--once", "--state", "disk/states"),
            ("project", SUMS, "--rebuild", "--state", "disk/states"),
            ("project", SUMS, "--once", "--export", "disk/sums.db"),
            ("project", SUMS, "--once", "--export", "disk/sums.jsonl"),
            ("snapshot", "push", "disk/depot"),
            ("snapshot", "push", "depot", "--state", "disk/states"),
        ):
            if args[-2:] == ("--state", "disk/states") and args[0] == "snapshot":
                folder.ok(*args)
                continue
            assert "cannot be written" in error_of(folder, *args), args
        (disk / "ballast").unlink()
        folder.ok("project", SUMS, "--once", "--state", "disk/states")
        assert folder.json("state", "sums", "--json", "--state", "disk/states") == sums(range(200))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# -- state -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> tuple[Counting, list[Position]]:
    """A folder whose projections are caught up, to be read; and where each number is."""
    folder = Counting(tmp_path_factory.mktemp("used"))
    places = folder.add(HUNDRED)
    for name in ("Sums", "Total"):
        folder.ok("project", f"counts:{name}", "--once")
    return folder, places


def test_state_prints_one_row_or_those_with_a_prefix_or_all(used: tuple[Counting, list[Position]]) -> None:
    folder, _ = used
    assert folder.json("state", "sums", "--prefix", "k1", "--json") == {"k1": sums(HUNDRED)["k1"]}
    assert folder.ok("state", "sums", "--prefix", "x") == ""
    assert folder.json("state", "sums", "k3", "--json") == sums(HUNDRED)["k3"]
    assert folder.json("state", "total") == {"n": sum(HUNDRED)}
    assert [line.split("\t")[0] for line in folder.ok("state", "sums").splitlines()] == sorted(sums(HUNDRED))


def test_a_key_that_is_not_there_prints_nothing_and_ends_with_1(
    used: tuple[Counting, list[Position]],
) -> None:
    done = used[0].run("state", "sums", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "sums v1 has no row 'nobody'.\n"


def test_a_projection_or_version_that_is_not_there_is_said(used: tuple[Counting, list[Position]]) -> None:
    folder, _ = used
    said = folder.run("state", "sms")
    assert said.returncode == 2
    assert said.stderr.splitlines()[0].startswith("error: There is no state of the projection 'sms' in ")
    assert said.stderr.splitlines()[1] == "  There are: sums, total."
    assert "no state of version 9 of the projection 'sums'" in error_of(
        folder, "state", "sums", "--version", "9", code=2
    )


@pytest.mark.parametrize("number", [0, 9, 42, 99])
def test_a_state_of_the_past_is_that_of_a_partition_which_has_seen_a_position(
    used: tuple[Counting, list[Position]], number: int
) -> None:
    folder, places = used
    topic, partition, offset = places[number]
    seen = [n for n in HUNDRED if places[n].partition == partition and places[n].offset <= offset]
    at = f"{topic}/{partition}@{offset}"
    assert folder.json("state", "sums", "--at", at, "--json") == sums(seen)
    assert folder.ok("state", "sums", f"k{number % 10}", "--at", at) == f"{sums(seen)[f'k{number % 10}']}\n"
    assert folder.json("state", "total", "--at", at) == {"n": sum(seen)}


def test_a_state_of_the_past_is_that_of_a_time_of_the_log(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    moment = datetime.now(UTC)
    while datetime.now(UTC) - moment < timedelta(milliseconds=2):  # the log counts milliseconds
        pass
    folder.add(range(100, 160))
    folder.ok("project", SUMS, "--once")
    at = moment.isoformat()
    assert folder.json("state", "sums", "--at", at, "--json") == sums(HUNDRED)
    assert folder.json("state", "sums", "k3", "--at", at) == sums(HUNDRED)["k3"]
    assert folder.json("state", "sums", "--at", "2001-01-01", "--json") == {}
    done = folder.run("state", "sums", "--at", "2101-01-01T00:00:00Z", "--json")
    assert json.loads(done.stdout) == sums(range(160))
    assert done.stderr == "2101-01-01T00:00:00Z is still to come: this is the state as of now.\n"


@pytest.mark.parametrize(
    ("at", "said", "code"),
    [
        ("yesterday", "'yesterday' is neither a position nor a time.", 2),
        (f"{TOPIC}/0", "is neither a position nor a time.", 2),
        (f"{TOPIC}/0@-1", "is neither a position nor a time.", 2),
        (f"{TOPIC}/0@99999", f"{TOPIC}/0 has no offset 99999 yet.", 2),
        (f"{TOPIC}/77@0", f"{TOPIC} has no partition 77.", 2),
        ("noesium.events.other/0@0", "does not fold noesium.events.other.", 2),
    ],
)
def test_a_wrong_moment_is_said(used: tuple[Counting, list[Position]], at: str, said: str, code: int) -> None:
    assert said in error_of(used[0], "state", "sums", "--at", at, code=code)


# -- projections -----------------------------------------------------------------------------------------


def test_projections_lists_versions_lag_and_dead_letters(folder: Counting) -> None:
    assert "No projection keeps its state in" in folder.run("projections").stderr
    folder.ok("project", SUMS, "--once")
    folder.add(range(100, 130))
    [listed] = folder.json("projections", "--json")
    assert (listed["name"], listed["version"], listed["current"]) == ("sums", 1, True)
    assert (listed["partitions"], listed["events"], listed["lag_events"]) == (4, 100, 30)
    assert listed["lag_ms"] >= 0
    assert (listed["dead_letters"], listed["events_per_s"]) == (0, 0)
    header, row = folder.ok("projections").splitlines()
    assert header.split()[:2] == ["projection", "version"]
    assert row.split()[:5] == ["sums", "v1", "4", "100", "30"]
    assert "0/s" in row.split()


def test_projections_lists_the_rate_of_one_that_is_followed(folder: Counting) -> None:
    total = 100

    def is_folding(_: Running) -> bool:
        nonlocal total
        with ThreadPoolExecutor() as pool:
            listed = pool.submit(folder.json, "projections", "--json")
            while not listed.done():
                folder.add(range(total, total + 10))
                total += 10
        [row] = listed.result()
        return 0 < row["events_per_s"] < total

    with folder.running("project", SUMS) as process:
        catches_up(folder, sums(HUNDRED), process)
        process.wait_for(is_folding)
        catches_up(folder, sums(range(total)), process)
        [still] = folder.json("projections", "--json")
        assert still["events_per_s"] == 0, "nothing came while it was looked at"


# -- rebuild and export ----------------------------------------------------------------------------------


def test_a_rebuild_makes_the_same_state_and_says_so(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    done = folder.run("project", SUMS, "--rebuild", "--verify")
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["10 rows are the same", "sums v1: 100 events in 4 partitions"]
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)
    assert not (folder.states / ".rebuild" / "sums").exists()


def test_a_rebuild_that_differs_is_said_and_replaces_nothing(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    before = {path: path.read_bytes() for path in folder.files()}
    folder.change('state + event.payload["n"]', 'state + event.payload["n"] + (event.payload["n"] == 55)')
    said = error_of(folder, "project", SUMS, "--rebuild", "--verify")
    was = sums(HUNDRED)["k5"]
    assert f"the row 'k5' was {was} and is {was + 1}. Nothing was replaced." in said
    assert {path: path.read_bytes() for path in folder.files()} == before
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)
    folder.ok("project", SUMS, "--rebuild")
    assert folder.json("state", "sums", "k5") == was + 1


def test_a_rebuild_with_an_event_that_cannot_be_folded_replaces_nothing(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    before = {path: path.read_bytes() for path in folder.files()}
    folder.change('state + event.payload["n"]', 'state + event.payload["m"]')
    done = folder.run("project", SUMS, "--rebuild")
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert said[0].startswith("error: The projection sums cannot take the event at ")
    assert said[0].endswith("KeyError: 'm'. Nothing was replaced.")
    assert "--on-error hold" in done.stderr
    assert {path: path.read_bytes() for path in folder.files()} == before
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)
    held = folder.run("project", SUMS, "--rebuild", "--on-error", "hold")
    assert held.returncode == 0
    assert held.stderr.splitlines()[0] == "sums v1: 100 events in 4 partitions, 100 dead letters"
    assert "could not be taken: demo.counted at " in held.stderr
    assert folder.json("state", "sums", "--json") == {}


def test_a_rebuild_of_nothing_has_nothing_to_compare_with(folder: Counting) -> None:
    assert "There is no state in" in error_of(folder, "project", SUMS, "--rebuild", "--verify")
    folder.ok("project", SUMS, "--rebuild")
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)


def test_the_state_is_exported_for_other_tools(folder: Counting) -> None:
    folder.ok("project", SUMS, "--export", "sums.jsonl")
    lines = [json.loads(line) for line in (folder.path / "sums.jsonl").read_text().splitlines()]
    assert {line["key"]: line["state"] for line in lines} == sums(HUNDRED)
    done = folder.run("project", SUMS, "--export", "sums.db")
    assert f"10 rows in {'sums.db'}" in done.stderr
    with sqlite3.connect(folder.path / "sums.db") as db:
        assert dict(db.execute("SELECT key, CAST(state AS INTEGER) FROM state")) == sums(HUNDRED)
    db.close()
    assert "cannot be written" in error_of(folder, "project", SUMS, "--export", "no/such/folder.db")


# -- a new version ---------------------------------------------------------------------------------------


def test_a_new_version_is_built_beside_the_old_one_and_takes_over(folder: Counting) -> None:
    with folder.running("project", SUMS) as old:
        catches_up(folder, sums(HUNDRED), old)
        folder.change("version = 1", "version = 2")
        folder.change('return state + event.payload["n"]', 'return state + 10 * event.payload["n"]')
        with folder.running("project", SUMS) as new:
            new.wait_for_error_line("sums v2 has caught up, and takes over")
            ten = {key: 10 * value for key, value in sums(HUNDRED).items()}
            assert folder.json("state", "sums", "--json") == ten
            assert folder.json("state", "sums", "--json", "--version", "1") == sums(HUNDRED)
            folder.add(range(100, 120))
            catches_up(folder, {key: 10 * value for key, value in sums(range(120)).items()}, new)
            listed = folder.json("projections", "--json")
            assert [(one["version"], one["current"]) for one in listed] == [(1, False), (2, True)]
            assert "v1 (not current)" in folder.ok("projections")


def test_a_new_version_that_cannot_take_over_ends_with_an_error_at_once(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    [current] = folder.path.rglob("current")
    folder.change("version = 1", "version = 2")
    current.unlink()
    current.mkdir()
    with folder.running("project", SUMS) as new:
        new.wait_for_error_line("current cannot be written")
        assert new.wait() == 1


def test_an_old_version_that_is_started_again_does_not_take_over(folder: Counting) -> None:
    folder.change("version = 1", "version = 2")
    folder.ok("project", SUMS, "--once")
    folder.change("version = 2", "version = 1")
    done = folder.run("project", SUMS, "--once")
    assert "readers take sums v2; --rebuild lets v1 take over again" in done.stderr
    assert folder.json("projections", "--json")[1]["current"] is True
    with folder.running("project", SUMS) as old:
        old.wait_for_error_line("readers take sums v2")
    folder.ok("project", SUMS, "--rebuild")
    assert [one["current"] for one in folder.json("projections", "--json")] == [True, False]


def test_a_state_of_the_past_needs_the_code_that_made_it(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    folder.change("version = 1", "version = 2")
    said = error_of(folder, "state", "sums", "--at", "2101-01-01")
    assert "counts:Sums is version 2 now, and the state is of version 1" in said
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)


# -- dead letters ----------------------------------------------------------------------------------------


def test_who_follows_says_what_cannot_be_taken_when_it_comes_and_not_again(folder: Counting) -> None:
    folder.add([-1])
    folder.ok("project", SUMS, "--once")
    with folder.running("project", SUMS) as process:
        process.wait_for_error_line("Ctrl-C ends it")
        (at,) = folder.add([-4])
        said = process.wait_for_error_line("could not be taken")
        assert said == (
            f"could not be taken: demo.counted at {TOPIC}/{at.partition}@{at.offset}: "
            "ValueError: -4 is negative (counts.py:26)"
        )
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert sum("could not be taken" in line for line in process.err) == 1
    assert "  All of them: noesium dlq list sums" in process.err


def test_a_poison_event_holds_its_key_back_until_it_is_redriven(folder: Counting) -> None:
    [place] = folder.add([-4], key="k4")
    folder.add([1_000], key="k4")
    folder.add([1_000], key="k5")
    done = folder.run("project", SUMS, "--once")
    assert done.returncode == 0
    at = f"{place.topic}/{place.partition}@{place.offset}"
    assert done.stderr.splitlines() == [
        "sums v1: 103 events in 4 partitions, 2 dead letters",
        f"could not be taken: demo.counted at {at}: ValueError: -4 is negative (counts.py:26)",
        "  All of them: noesium dlq list sums",
    ]
    assert folder.run("project", SUMS, "--once").stderr == done.stderr.splitlines(keepends=True)[0]
    assert folder.json("state", "sums", "k4") == sums(HUNDRED)["k4"]
    assert folder.json("state", "sums", "k5") == sums(HUNDRED)["k5"] + 1_000

    first, second = folder.json("dlq", "list", "sums", "--json")
    assert (first["key"], first["position"], first["event_type"]) == ("k4", at, "demo.counted")
    assert (first["error_type"], first["reason"]) == ("ValueError", "-4 is negative")
    assert (second["reason"], second["key"]) == (None, "k4")
    assert "waits behind another one" in folder.ok("dlq", "list")
    shown = folder.ok("dlq", "show", "sums", at)
    assert "reason: -4 is negative\n" in shown
    assert "header ce_type: demo.counted\n" in shown
    assert '"n": -4' in shown or '"n":-4' in shown

    stay = folder.run("dlq", "redrive", "sums")
    assert (stay.returncode, stay.stderr) == (1, "0 events folded, 2 dead letters stay\n")
    folder.change("< 0", "< -10")
    other = folder.run("dlq", "redrive", "sums", "k5")
    assert (other.returncode, other.stderr.splitlines()) == (
        1,
        ["The key 'k5' of sums has no dead letters.", "0 events folded, 0 dead letters stay"],
    )
    folder.add([-100], key="k5")
    assert "3 dead letters" in folder.run("project", SUMS, "--once").stderr
    assert folder.run("dlq", "redrive", "sums", "k5").stderr == "0 events folded, 1 dead letters stay\n"
    done = folder.run("dlq", "redrive", "sums", "k4")
    assert (done.returncode, done.stderr) == (0, "2 events folded, 0 dead letters stay\n")
    assert folder.json("state", "sums", "k4") == sums(HUNDRED)["k4"] - 4 + 1_000
    assert [letter["key"] for letter in folder.json("dlq", "list", "--json")] == ["k5"]


def test_a_running_process_redrives_with_its_own_code(folder: Counting) -> None:
    folder.add([-4], key="k4")
    allowed = folder.path / "allowed"
    folder.change(
        'if event.payload["n"] < 0:',
        f'if event.payload["n"] < 0 and not __import__("pathlib").Path({str(allowed)!r}).exists():',
    )
    with folder.running("project", SUMS) as process:
        catches_up(folder, sums(HUNDRED), process)
        process.wait_for(lambda _: len(folder.json("dlq", "list", "--json")) == 1)
        stay = folder.run("dlq", "redrive", "sums")
        assert (stay.returncode, stay.stderr.splitlines()) == (
            1,
            [
                "0 events folded, 1 dead letters stay",
                "Running processes have tried it with the code that they were started with: start them anew.",
            ],
        )
        allowed.touch()
        done = folder.run("dlq", "redrive", "sums")
        assert (done.returncode, done.stderr) == (0, "1 events folded, 0 dead letters stay\n")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert folder.json("state", "sums", "k4") == sums(HUNDRED)["k4"] - 4
    assert not [path for path in folder.states.rglob("*.redrive*")]


def test_code_of_another_version_redrives_nothing(folder: Counting) -> None:
    folder.add([-4], key="k4")
    folder.ok("project", SUMS, "--once")
    folder.change("version = 1", "version = 2")
    folder.change("< 0", "< -10")
    assert "is of version 1 of sums, and the code here is version 2" in error_of(
        folder, "dlq", "redrive", "sums"
    )
    assert folder.json("state", "sums", "k4") == sums(HUNDRED)["k4"]


def test_on_error_stop_stops_at_the_poison_event_and_keeps_what_came_before(folder: Counting) -> None:
    folder.add([-4], key="k4")
    said = error_of(folder, "project", SUMS, "--once", "--on-error", "stop")
    assert "cannot take the event at " in said
    assert "-4 is negative" in said
    assert folder.json("state", "sums", "k4") == sums(HUNDRED)["k4"]
    with folder.running("project", SUMS, "--on-error", "stop") as process:
        assert process.wait() == 1
        assert sum(line.startswith("error: ") for line in process.err) == 1
    assert folder.run("project", SUMS, "--once").returncode == 0


def test_dead_letters_that_are_not_there_are_said(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    assert folder.run("dlq", "list", "sums").stderr == "There are no dead letters.\n"
    shown = folder.run("dlq", "show", "sums", f"{TOPIC}/0@0")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "no dead letter at" in shown.stderr
    for garbage in ("garbage", "2026-03-01"):
        assert f"{garbage!r} is n" in error_of(folder, "dlq", "show", "sums", garbage, code=2)
    assert "There is no state of the projection 'nobody'" in error_of(folder, "dlq", "list", "nobody", code=2)
    assert "There is no state of the projection 'nobody'" in error_of(
        folder, "dlq", "redrive", "nobody", code=2
    )
    assert folder.run("dlq", "redrive", "sums").stderr == "0 events folded, 0 dead letters stay\n"


# -- snapshots that travel -------------------------------------------------------------------------------


def keys_of(folder: Counting) -> tuple[str, str]:
    """Files of a private key and of the public keys."""
    private = Ed25519PrivateKey.generate()
    text = base64.b64encode(private.private_bytes_raw()).decode()
    (folder.path / "private.json").write_text(json.dumps({"ann": text}))
    (folder.path / "private.json").chmod(stat.S_IRUSR)
    text = base64.b64encode(private.public_key().public_bytes_raw()).decode()
    (folder.path / "public.json").write_text(json.dumps({"ann": text}))
    return "private.json", "public.json"


def test_a_new_machine_pulls_and_goes_on_from_there(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    pushed = folder.run("snapshot", "push", "depot")
    assert pushed.stderr.startswith("sums v1: 100 events in 4 partitions, ")
    assert (folder.path / pushed.stdout.strip() / "manifest.json").is_file()
    folder.add(range(100, 130))
    pulled = folder.run("snapshot", "pull", "depot", "--state", "new")
    assert pulled.stderr == "sums v1: 100 events in 4 partitions taken, 0 partitions stay as they are\n"
    assert folder.json("state", "sums", "--json", "--state", "new") == sums(HUNDRED)
    done = folder.run("project", SUMS, "--once", "--state", "new")
    assert done.stderr == "sums v1: 130 events in 4 partitions\n"
    assert folder.json("state", "sums", "--json", "--state", "new") == sums(range(130))
    again = folder.run("snapshot", "pull", "depot", "sums", "--state", "new")
    assert again.returncode == 0
    assert "0 events in 0 partitions taken, 4 partitions stay as they are" in again.stderr


def test_a_process_pushes_while_it_folds_and_a_pull_leaves_its_files_alone(folder: Counting) -> None:
    with folder.running("project", SUMS) as process:
        catches_up(folder, sums(HUNDRED), process)
        folder.ok("snapshot", "push", "depot", "sums")
        left = folder.run("snapshot", "pull", "depot", "sums")
        assert left.returncode == 0
        assert left.stderr.count("is left to the process that folds it.") == 4
        folder.add(range(100, 120))
        catches_up(folder, sums(range(120)), process)


def test_signed_pushes_are_taken_and_others_are_refused(folder: Counting) -> None:
    private, public = keys_of(folder)
    folder.ok("project", SUMS, "--once")
    folder.ok("snapshot", "push", "depot")
    folder.env["NOESIUM_PUBLIC_KEYS"] = public
    assert "that can be taken" in error_of(folder, "snapshot", "pull", "depot", "--state", "new")
    folder.env["NOESIUM_SIGNING_KEY"] = private
    folder.ok("snapshot", "push", "depot")
    done = folder.run("snapshot", "pull", "depot", "--state", "new")
    assert done.returncode == 0
    assert "is refused: its signature is missing" in done.stderr
    assert folder.json("state", "sums", "--json", "--state", "new") == sums(HUNDRED)
    folder.env["NOESIUM_SIGNING_KEY"] = "nowhere.json"
    assert "nowhere.json is no file of a private key" in error_of(folder, "snapshot", "push", "depot", code=2)


def test_old_pushes_are_pruned(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    pushes = [folder.ok("snapshot", "push", "depot", "--keep", "2").strip() for _ in range(4)]
    assert (
        sorted(f"depot/sums/v1/{path.name}" for path in (folder.path / "depot/sums/v1").iterdir())
        == (pushes[-2:])
    )


@pytest.mark.parametrize(
    ("args", "said", "code"),
    [
        (("push", "tape://x"), "the scheme tape is not known", 2),
        (("push", "depot", "nobody"), "There is no state of the projection 'nobody'", 2),
        (("push", "depot", "--keep", "0"), "0 is not in the range", 2),
        (("pull", "nowhere"), "There are no pushes in nowhere.", 2),
        (("pull", "nowhere", "sums"), "There is no push of sums in nowhere", 1),
        (("push", "counts.py"), "counts.py", 1),
        (("pull", "counts.py", "sums"), "counts.py/sums cannot be read: ", 1),
    ],
)
def test_bad_input_of_snapshot_is_said(
    used: tuple[Counting, list[Position]], args: tuple[str, ...], said: str, code: int
) -> None:
    assert said in error_of(used[0], "snapshot", *args, code=code)


def test_nothing_is_there_to_push(folder: Counting) -> None:
    assert "No projection keeps its state in" in error_of(folder, "snapshot", "push", "depot")
