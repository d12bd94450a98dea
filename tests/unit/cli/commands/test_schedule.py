"""`noesium schedule`: what it prints, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

from noesium_stream.cli.exits import OK, USAGE
from tests.support.command import Folder


def test_a_schedule_from_its_first_day_to_its_last(tmp_path: Path) -> None:
    folder = Folder(tmp_path, NOESIUM_HOME=str(tmp_path / "home"))
    cron = ("--cron", "30 7 * * MON-FRI", "--zone", "Europe/Berlin")
    added = folder.run("schedule", "add", "report", "echo", "--input", '{"text": "x"}', *cron, "--json")
    assert added.returncode == OK, added.stderr
    found = json.loads(added.stdout)
    assert (found["name"], found["input"], len(found["next_ms"])) == ("report", {"text": "x"}, 3)
    assert "no scheduler runs: schedules wait for `noesium worker agents.scheduler`" in added.stderr
    again = folder.run("schedule", "add", "report", "echo", *cron)
    assert (again.returncode, again.stdout) == (USAGE, "")
    assert again.stderr.startswith("error: There is a schedule report already.")
    once = folder.run("schedule", "add", "once", "echo", "--at", "2099-12-24T18:00", "--zone", "Asia/Tokyo")
    assert "at 2099-12-24T09:00:00.000Z" in once.stdout
    bounds = ("--from", "2099-01-01T00:00", "--until", "2099-01-02T00:00+01:00", "--zone", "Europe/Berlin")
    bounded = folder.run("schedule", "add", "bounded", "echo", "--cron", "0 12 * * *", *bounds)
    assert "from 2098-12-31T23:00:00.000Z until 2099-01-01T23:00:00.000Z" in bounded.stdout, bounded.stderr
    assert "next     2099-01-01 11:00:00Z\n" in bounded.stdout
    assert folder.run("schedule", "remove", "bounded").returncode == OK
    assert folder.run("schedule", "pause", "report", "--note", "tea").stdout == "paused report\n"
    listed = folder.run("schedule", "list").stdout
    assert "note     tea" in listed
    assert "next     2099-12-24 09:00:00Z" in listed
    assert folder.run("schedule", "trigger", "report").stdout == "triggered report\n"
    assert folder.run("schedule", "resume", "report").stdout == "resumed report\n"
    assert folder.run("schedule", "remove", "report").stdout == "removed report\n"
    assert [one["name"] for one in json.loads(folder.run("schedule", "list", "--json").stdout)] == ["once"]


def test_an_agent_that_nobody_has_ever_run_is_noted_and_its_schedule_is_added(tmp_path: Path) -> None:
    folder = Folder.with_toys(tmp_path, NOESIUM_HOME=str(tmp_path / "home"))
    bad = folder.run("schedule", "add", "bad", "nosuchagent", "--at", "2099-01-01T10:00", "--json")
    assert (bad.returncode, json.loads(bad.stdout)["name"]) == (OK, "bad")
    assert "nobody has ever run the agent type nosuchagent on this log" in bad.stderr
    folder.ok("run", "agents.echo", "hello")
    known = folder.run("schedule", "add", "good", "echo", "--at", "2099-01-01T10:00")
    assert known.returncode == OK
    assert "nobody has ever run" not in known.stderr
    typo = folder.run("schedule", "add", "typo", "ecko", "--at", "2099-01-01T10:00")
    assert "Did you mean echo?" in typo.stderr


def test_what_is_wrong_is_said_in_one_line_and_what_to_do(tmp_path: Path) -> None:
    folder = Folder(tmp_path, NOESIUM_HOME=str(tmp_path / "home"))
    folder.run("schedule", "add", "s", "echo", "--every", "1h")
    for arguments, said in (
        (("add", "t", "echo", "--cron", "a b c d e"), "is no cron expression"),
        (("add", "t", "echo", "--cron", "* * * * *", "--zone", "Mars"), "There is no time zone 'Mars'."),
        (("add", "t", "echo", "--at", "tomorrow"), "'tomorrow' is no moment."),
        (("add", "t", "echo", "--at", "2020-01-01T00:00"), "has passed already"),
        (("add", "t", "echo", "--at", "2099-01-01T00:00Z", "--zone", "UTC"), "has an offset already"),
        (("add", "t", "agents.echo", "--every", "1h"), "'agents.echo' is not an agent type."),
        (("add", "t", "echo"), "A schedule has one of these"),
        (("pause", "t"), "There is no schedule 't' on this log."),
    ):
        done = folder.run("schedule", *arguments)
        assert (done.returncode, done.stdout) == (USAGE, ""), arguments
        assert said in done.stderr.splitlines()[0], done.stderr
