"""What a signal does before the command has begun, and that each command begins."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any

import click
import pytest

from noesium_stream.cli import app, entry, signals


@pytest.mark.parametrize(
    ("words", "handler"),
    [
        ("worker agents.echo", signals.stop),
        ("worker agents.echo --export=a", signals.stop),
        ("project m:P", signals.stop),
        ("--debug project m:P", signals.stop),
        ("project m:P --once", signals.break_off),
        ("project m:P --rebuild", signals.break_off),
        ("project m:P --migrate", signals.break_off),
        ("project m:P --export=a.db", signals.break_off),
        ("project m:P --export-dir b", signals.stop),
        ("runs", None),
    ],
)
def test_sigterm_is_no_success_of_a_projection_that_has_something_to_finish(
    monkeypatch: pytest.MonkeyPatch, words: str, handler: Any
) -> None:
    taken: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", taken.__setitem__)
    signals.take_signals(words.split())
    assert taken.get(signal.SIGTERM) is handler


@pytest.mark.parametrize(("ignored", "taken"), [(False, True), (True, False)])
def test_ctrl_c_stays_ignored_where_the_parent_ignores_it(
    monkeypatch: pytest.MonkeyPatch, ignored: bool, taken: bool
) -> None:
    before = signal.SIG_IGN if ignored else signal.default_int_handler
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "getsignal", lambda number: before)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    signals.take_signals(["runs"])
    assert (signal.SIGINT in handlers) is taken


def test_what_ctrl_c_does_is_as_it_was_once_the_command_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        entry.main(["--help"])
    assert (ended.value.code, signal.getsignal(signal.SIGINT)) == (0, before)


def test_a_program_may_call_it_on_a_thread_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[Any] = []

    def call() -> None:
        try:
            entry.main(["--version"])
        except SystemExit as ended:
            codes.append(ended.code)

    thread = Thread(target=call)
    thread.start()
    thread.join()
    assert codes == [0]


@pytest.fixture
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_nothing_is_collected_until_the_command_begins(
    collecting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))

    def run(args: Any) -> int:
        seen.append(gc.isenabled())
        signals.begins()
        seen.append(gc.isenabled())
        return 0

    monkeypatch.setattr(app, "run", run)
    with pytest.raises(SystemExit):
        entry.main(["runs"])
    assert seen == [False, True]
    assert len(frozen) == 1, "what is loaded is spared once"


def test_a_command_that_never_begins_leaves_the_collector_on(
    collecting: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: pytest.fail("the program's objects are spared"))
    with pytest.raises(SystemExit):
        entry.main(["--help"])
    assert gc.isenabled()


def test_a_collector_that_the_program_has_switched_off_stays_off(
    collecting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.disable()
    monkeypatch.setattr(app, "run", lambda args: signals.begins() or 0)
    with pytest.raises(SystemExit):
        entry.main(["runs"])
    assert not gc.isenabled()


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for below, inner in command.commands.items():
            yield from leaves(inner, f"{name} {below}")
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command


def wrappers(function: Any) -> Iterator[str]:
    while function is not None:
        yield function.__code__.co_qualname
        function = getattr(function, "__wrapped__", None)


@pytest.mark.parametrize("name", app.COMMANDS)
def test_each_command_begins_before_it_does_anything(name: str) -> None:
    group: Any = app.cli
    command = group.get_command(SimpleNamespace(), name)
    found = dict(leaves(command, name))
    assert found
    for path, leaf in found.items():
        begins = {"asynchronous.<locals>.run", "synchronous.<locals>.run"} & set(wrappers(leaf.callback))
        assert begins, path
