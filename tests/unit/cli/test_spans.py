"""Lengths of time on the command line: what is accepted, and what is said of what is not."""

from __future__ import annotations

from datetime import timedelta

import click
import pytest
from click.testing import CliRunner

from noesium_stream.cli.app import cli
from noesium_stream.cli.spans import Span

CENTURY = timedelta(days=36_500)
HOW = "say it as 90s, 10m, 1h30m or 2d."


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("2d", timedelta(days=2)),
        ("1d2h3m4s", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("0.5s", timedelta(milliseconds=500)),
        ("1.5h", timedelta(minutes=90)),
        ("30m1h", timedelta(minutes=90)),
        ("1m1m", timedelta(minutes=2)),
        ("0h1s", timedelta(seconds=1)),
        (" 10m ", timedelta(minutes=10)),
        ("36500d", CENTURY),
    ],
)
def test_a_length_of_time_is_a_sum_of_days_hours_minutes_and_seconds(text: str, span: timedelta) -> None:
    assert Span().convert(text, None, None) == span


def test_what_is_a_length_of_time_already_stays_one() -> None:
    assert Span().convert(timedelta(minutes=1), None, None) == timedelta(minutes=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "10",
        "m",
        "10 m",
        "1h 30m",
        "10M",
        "10min",
        "-10m",
        "+10m",
        "1h30",
        ".5s",
        "5.s",
        "1e3s",
        "1,5h",
        "∞",
        "10m;",
    ],
)
def test_what_is_no_length_of_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        Span().convert(text, None, None)
    assert raised.value.message == f"{text.strip()!r} is no length of time; {HOW}"


@pytest.mark.parametrize("text", ["0s", "0d0h0m0s", "0.0000001s", "36500d1s", "999999d"])
def test_nothing_and_more_than_a_century_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        Span().convert(text, None, None)
    assert raised.value.message == f"{text!r} is not between nothing and a hundred years."


@pytest.mark.parametrize("text", ["9999999999d", "999999999d1d", f"{'9' * 400}h"])
def test_what_no_calendar_holds_is_too_long(text: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        Span().convert(text, None, None)
    assert raised.value.message == f"{text!r} is too long."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--deadline", "soon"], f"Invalid value for '--deadline': 'soon' is no length of time; {HOW}"),
        (
            ["--deadline", "0s"],
            "Invalid value for '--deadline': '0s' is not between nothing and a hundred years.",
        ),
        (["--deadline"], "Option '--deadline' requires an argument."),
    ],
)
def test_a_bad_deadline_is_a_mistake_of_who_types_it(words: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, ["run", "tests.chaos.workload:Caller", "--input", "{}", *words])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_the_help_says_how_a_deadline_is_given() -> None:
    said = " ".join(CliRunner().invoke(cli, ["run", "--help"]).stdout.split())
    assert "--deadline TIME" in said
    assert "90s, 10m, 1h30m, 2d" in said
