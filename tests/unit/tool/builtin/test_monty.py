"""Code of a model stops at each call, and any process goes on with it from the answers alone."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from noesium_stream.errors import ToolExecutionError
from noesium_stream.tool.builtin.monty import (
    Answered,
    CodeLimits,
    Finished,
    Surroundings,
    Wanted,
    run_until_call,
)

CODE = "found = search(text='x', most=2)\nprint(len(found))\n{'first': fetch(found[0])}"
SEARCH = Wanted("search", (), {"text": "x", "most": 2})
FETCH = Wanted("fetch", ("a",))


def error_of(code: str, limits: CodeLimits | None = None) -> str:
    found = run_until_call(code, limits=limits)
    assert isinstance(found, Finished)
    assert found.error is not None
    return found.error


def test_it_goes_from_call_to_call_to_its_end() -> None:
    assert run_until_call(CODE) == SEARCH
    answered = [Answered(SEARCH, ["a", "b"])]
    assert run_until_call(CODE, answered) == FETCH
    answered.append(Answered(FETCH, {"page": 1}))
    assert run_until_call(CODE, answered) == Finished({"first": {"page": 1}}, printed="2\n")


def test_clock_and_chance_are_given_and_so_another_process_takes_the_same_way() -> None:
    code = "import random, time\n[random.random(), time.time(), list({'a', 'b', 'c'}), hash('a')]"
    known = Surroundings(datetime(2026, 1, 2, tzinfo=UTC), "call-1")
    here = run_until_call(code, surroundings=known)
    script = (
        "import sys; from datetime import UTC, datetime\n"
        "from noesium_stream.tool.builtin.monty import Surroundings, run_until_call\n"
        "known = Surroundings(datetime(2026, 1, 2, tzinfo=UTC), 'call-1')\n"
        "print(run_until_call(sys.argv[1], surroundings=known))"
    )
    done = subprocess.run([sys.executable, "-c", script, code], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{here}\n", done.stderr
    assert here != run_until_call(code, surroundings=Surroundings(known.now, "call-2"))


def test_answers_to_other_calls_are_refused() -> None:
    for wrong in (Wanted("search", (), {"text": "y", "most": 2}), FETCH):
        with pytest.raises(ToolExecutionError, match="did not make its call 1"):
            run_until_call(CODE, [Answered(wrong, [])])
    with pytest.raises(ToolExecutionError, match="did not make its call 1"):
        run_until_call("1 + 1", [Answered(SEARCH, [])])


def test_code_handles_a_failed_call() -> None:
    code = "try:\n    x = ask()\nexcept PermissionError as e:\n    x = str(e)\nx"
    refused = Answered(Wanted("ask"), error="no", error_class="PermissionError")
    assert run_until_call(code, [refused]) == Finished("no")
    found = run_until_call("ask()", [Answered(Wanted("ask"), error="no", error_class="SystemExit")])
    assert isinstance(found, Finished)
    assert found.error == "RuntimeError: no"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("open('/etc/passwd').read()", "PermissionError"),
        ("import os\nos.environ['HOME']", "Error"),
        ("import os\nos.system('id')", "Error"),
        ("import socket", "ModuleNotFoundError"),
        ("import subprocess", "ModuleNotFoundError"),
        ("().__class__.__bases__[0].__subclasses__()", "AttributeError"),
        ("missing", "NameError"),
        ("def", "Expected"),
        ("ask(b'bytes')", "no JSON form"),
        ("class A:\n    pass\nA()", "no JSON form"),
    ],
)
def test_code_reaches_nothing_outside(code: str, why: str) -> None:
    assert why in error_of(code)


def test_code_is_bounded() -> None:
    assert "MemoryError" in error_of("x = [0] * 10**9")
    assert "RecursionError" in error_of("def f():\n    return f()\nf()")
    assert "over 0.2 s" in error_of("while True:\n    pass", CodeLimits(cpu_s=0.2)) or "limit" in error_of(
        "while True:\n    pass", CodeLimits(cpu_s=0.2)
    )
    assert "MemoryError" in error_of("print('x' * 5000)", CodeLimits(printed_bytes=1000))
    assert "over 1,000,000 bytes" in error_of("'x' * 2000000")
    assert "over 1,000,000 bytes" in error_of("f('x' * 2000000)")
    calls = [Answered(Wanted("f", (number,)), number) for number in range(3)]
    code = "for n in range(10):\n    f(n)"
    assert run_until_call(code, calls, limits=CodeLimits(calls=4)) == Wanted("f", (3,))
    found = run_until_call(code, calls, limits=CodeLimits(calls=3))
    assert isinstance(found, Finished)
    assert found.error == "The code makes over 3 calls."


def test_functions_that_are_not_named_are_not_there() -> None:
    code = "try:\n    delete()\nexcept NameError:\n    pass\ndouble(4)"
    only = frozenset({"double"})
    assert run_until_call(code, functions=only) == Wanted("double", (4,))
    answered = [Answered(Wanted("double", (4,)), 8)]
    assert run_until_call(code, answered, functions=only) == Finished(8)
