"""Python written by a model, run by `pydantic-monty` up to its next call of a function from outside.

`run_until_call` takes code and the answers to the calls that it has made so far, and executes it from its
beginning: to the next call, or to its end. So a pause keeps nothing, and any process can go on with it. No
snapshot of the interpreter is written or read: a snapshot that somebody has changed would be code of theirs.
That is possible because the code always takes the same way: clock and chance are those of `Surroundings`,
and nothing else comes from outside. Where it does not, as in another version of the interpreter, the calls
differ from those that were answered, and it fails.

The interpreter is a process of its own, which answers no request for files, network or environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import pydantic_monty as monty

from noesium_stream.errors import ToolExecutionError
from noesium_stream.tool.extra import missing_extra

MAX_VALUE: Final = 1_000_000
"""Bytes of the JSON form of a value, or of the arguments of a call."""
_SAID: Final = 2_000
_GRACE_S: Final = 5.0
_LOOKUPS: Final = 10_000
_ERRORS: Final = ("ValueError", "PermissionError", "TimeoutError", "RuntimeError", "NameError", "TypeError")


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """Limits of one program.

    Attributes:
        memory_bytes: of the interpreter's values.
        cpu_s: seconds that it may compute, from its beginning, without what its calls take.
        calls: calls that it may make.
        printed_bytes: characters of what it prints that are kept.
    """

    memory_bytes: int = 64 * 2**20
    cpu_s: float = 5.0
    calls: int = 100
    printed_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the code can read that is not its own.

    Attributes:
        now: the time, which stands still.
        seed: of `random`.
    """

    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seed: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The code calls a function from outside: by its name, with JSON values."""

    name: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and its answer: a value, or an error of a built-in class that the code can handle."""

    call: Wanted
    value: Any = None
    error: str | None = None
    error_class: str = "RuntimeError"


@dataclass(frozen=True, slots=True)
class Finished:
    """The code has ended: with the value of its last expression, or with an error; and what it printed."""

    value: Any = None
    error: str | None = None
    printed: str = ""


def run_until_call(
    code: str,
    answered: Sequence[Answered] = (),
    *,
    functions: frozenset[str] | None = None,
    surroundings: Surroundings | None = None,
    limits: CodeLimits | None = None,
) -> Wanted | Finished:
    """Execute code from its beginning to its next call, or to its end; blocks for `cpu_s`, and 5 s more.

    Args:
        code: Python, as far as Monty knows it. An error in it is a `Finished`, too.
        answered: the calls that it has made, with their answers, in order.
        functions: those that it may call; to call another one is a NameError. None: any.
        surroundings: the same for each execution of this code.
        limits: None: the default ones.

    Raises:
        ToolExecutionError: it did not make the calls that were answered, or its interpreter was ended.
        ConfigError: the interpreter's program is not installed.
    """
    known = surroundings or Surroundings()
    run = partial(_run, code, answered, functions, known, limits or CodeLimits())
    try:
        with suppress(monty.MontyCrashedError):
            return run()
        # What ended the interpreter may have been meant for this process: Ctrl-C is for all of a terminal.
        return run()
    except monty.MontyCrashedError as error:
        raise ToolExecutionError(f"The interpreter of the code has ended: {str(error)[:_SAID]}") from None
    except FileNotFoundError as error:
        raise missing_extra("Code in Monty", "pydantic-monty-runtime", "python-tool") from error


def _run(
    code: str,
    answered: Sequence[Answered],
    functions: frozenset[str] | None,
    surroundings: Surroundings,
    bounds: CodeLimits,
) -> Wanted | Finished:
    printed = monty.CollectString(bounds.printed_bytes)
    try:
        with _session(surroundings, bounds) as session:
            found = _at_call(session.feed_start(code, print_callback=printed), functions)
            for number, answer in enumerate(answered):
                _check_same(found, answer.call, number)
                found = _at_call(_resumed(found, answer), functions)
            if isinstance(found, monty.MontyComplete):
                return _finished(found.output, printed.output)
            if len(answered) >= bounds.calls:
                return Finished(error=f"The code makes over {bounds.calls} calls.", printed=printed.output)
            return _wanted(found)
    except monty.MontyCrashedError as error:
        if not error.timed_out:
            raise
        return Finished(error=f"The code ran for over {bounds.cpu_s:g} s.", printed=printed.output)
    except monty.MontyError as error:
        return Finished(error=str(error)[:_SAID] or type(error).__name__, printed=printed.output)
    except _NoJsonFormError as error:
        return Finished(error=str(error), printed=printed.output)


class _NoJsonFormError(Exception):
    """Never leaves this module."""


@contextmanager
def _session(surroundings: Surroundings, limits: CodeLimits) -> Iterator[monty.MontySession]:
    bounds: monty.ResourceLimits = {
        "max_memory": limits.memory_bytes,
        "max_feed_duration_secs": limits.cpu_s,
        "max_turn_duration_secs": limits.cpu_s,
    }
    policy: monty.OSPolicy = {
        "datetime": surroundings.now,
        "timezone": "utc",
        "sleep": "zero",
        "process_time": "zero",
        "random_start": {"seed": surroundings.seed},
    }
    patience_s = limits.cpu_s + _GRACE_S
    with (
        monty.Monty(binary_path=_binary(), max_processes=1, request_timeout=patience_s) as pool,
        pool.checkout(limits=bounds, os_policy=policy) as session,
    ):
        yield session


def _at_call(found: Any, functions: frozenset[str] | None) -> Any:
    """Go on to the next call of a function from outside, or to the end."""
    for _ in range(_LOOKUPS):
        if isinstance(found, monty.NameLookupSnapshot):
            found = found.resume()  # there are no names but the code's own: NameError
        elif isinstance(found, monty.FunctionSnapshot) and found.is_os_function:
            found = found.resume_not_handled()
        elif _is_unknown(found, functions):
            said = f"name {str(found.function_name)[:200]!r} is not defined"
            found = found.resume({"exc_type": "NameError", "message": said})
        elif isinstance(found, monty.FunctionSnapshot | monty.MontyComplete):
            return found
        else:
            raise _NoJsonFormError("The code waits for several calls at once: make one after the other.")
    raise _NoJsonFormError(f"The code asks the system over {_LOOKUPS:,} times.")


def _is_unknown(found: Any, functions: frozenset[str] | None) -> bool:
    if functions is None or not isinstance(found, monty.FunctionSnapshot):
        return False
    return found.function_name not in functions


def _wanted(found: monty.FunctionSnapshot) -> Wanted:
    name = str(found.function_name)[:200]
    said: Any = _json([list(found.args), dict(found.kwargs)], f"An argument of {name}")
    return Wanted(name, tuple(said[0]), said[1])


def _check_same(found: Any, call: Wanted, number: int) -> None:
    if not isinstance(found, monty.FunctionSnapshot) or _wanted(found) != call:
        raise ToolExecutionError(
            f"The code did not make its call {number + 1}, {call.name}, again.",
            hint="Is this another version of pydantic-monty?",
        )


def _resumed(found: monty.FunctionSnapshot, answer: Answered) -> Any:
    if answer.error is None:
        return found.resume({"return_value": answer.value})
    kind = answer.error_class if answer.error_class in _ERRORS else "RuntimeError"
    return found.resume({"exc_type": kind, "message": answer.error})  # type: ignore[typeddict-item]


def _finished(output: Any, printed: str) -> Finished:
    return Finished(_json(output, "The value of the last expression"), printed=printed)


@lru_cache(1)
def _binary() -> Path | None:
    """The interpreter's program as its distribution was installed; None: pydantic-monty looks for it."""
    with suppress(PackageNotFoundError):
        for file in distribution("pydantic-monty-runtime").files or ():
            found = Path(str(file.locate()))
            if file.name in ("monty", "monty.exe") and found.is_file():
                return found.resolve()
    return None


def _json(value: Any, what: str) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise _NoJsonFormError(f"{what} has no JSON form.") from None
    if len(text) > MAX_VALUE:
        raise _NoJsonFormError(f"{what} takes over {MAX_VALUE:,} bytes.")
    return json.loads(text)
