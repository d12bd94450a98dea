"""Real programs that know nothing of this package, as sub-agents: `sed` and Python, others where they are."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from noesium_stream import SideEffectClass, TextLines, capability, cli_subagent
from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.errors import RunFailedError
from tests.support.reading import PATIENCE_S
from tests.support.subagents import playing

PURE = SideEffectClass.PURE


@capability("text.shout", side_effects=PURE)
def shout(text: str) -> str:
    """A text in capitals."""


@capability("text.sort_keys", side_effects=PURE)
def sort_keys(value: dict[str, Any], more: int = 0) -> Any:
    """An object with its keys in order."""


@capability("calc.evaluate", side_effects=PURE)
def evaluate(expression: str) -> float:
    """The value of an expression."""


@capability("numbers.sum", side_effects=PURE)
def total(numbers: list[Any]) -> float:
    """The sum of numbers."""


@capability("books.find", side_effects=PURE)
def find(author: str) -> list[dict[str, Any]]:
    """The books of an author."""


def answers(kind: type[BaseGraphicAgent], home: Path, *payloads: dict[str, Any]) -> Any:
    """The results of runs, or the errors that they fail with."""

    async def asking() -> list[Any]:
        found: list[Any] = []
        async with playing(kind, home) as play:
            for payload in payloads:
                run = await play.client.start(kind.agent_type, payload)
                try:
                    found.append(await run.result(timeout=PATIENCE_S))
                except RunFailedError as error:
                    found.append(error.message)
        return found

    return asking()


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program} on this machine")


UNBUFFERED = "-l" if sys.platform == "darwin" else "-u"


async def test_sed_answers_a_line_with_a_line(tmp_path: Path) -> None:
    kind = cli_subagent(
        "shouting",
        ["sed", UNBUFFERED, "y/abcdefghijklmnopqrstuvwxyz/ABCDEFGHIJKLMNOPQRSTUVWXYZ/"],
        [shout],
        protocol=TextLines("{text}"),
    )
    first, second, refused = await answers(
        kind, tmp_path, {"text": "bread"}, {"text": "o\ti\tl"}, {"text": "a\nb"}
    )
    assert (first, second) == ("BREAD", "O\tI\tL")
    assert "CapabilityInputError: The input's 'text' has a line break" in refused


async def test_sed_can_speak_json_lines(tmp_path: Path) -> None:
    script = r's/^\{"request_id":("[^"]*").*"text":("[^"]*")\},"context".*$/{"request_id":\1,"result":\2}/'
    kind = cli_subagent("echoing", ["sed", UNBUFFERED, "-E", script], [shout])
    assert await answers(kind, tmp_path, {"text": "bread"}) == ["bread"]


async def test_json_tool_of_python_reads_the_input_as_json(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "json.tool", "--json-lines", "--sort-keys", "--compact"]
    kind = cli_subagent(
        "sorting", command, [sort_keys], protocol=TextLines('[{value}, "{request_id}"]', answer="json")
    )
    (found,) = await answers(kind, tmp_path, {"value": {"b": 1, "a": "\n"}})
    assert list(found[0]) == ["a", "b"]


async def test_python_itself_is_a_calculator_with_a_memory(tmp_path: Path) -> None:
    @capability("python.run")
    def run(line: str, session: str) -> str: ...

    command = [
        sys.executable,
        "-u",
        "-q",
        "-c",
        "import code; code.interact(banner='', readfunc=lambda _: input())",
    ]
    kind = cli_subagent(
        "pythons",
        command,
        [run],
        protocol=TextLines("{line}\nprint('{request_id}')", end="{request_id}"),
        session="session",
    )
    asked = [("x = 20", "a"), ("x + 22", "a"), ("x", "b"), ("x", "a")]
    found = await answers(kind, tmp_path, *({"line": line, "session": who} for line, who in asked))
    assert found == ["", "42", "", "20"]  # the error of b is on standard error


@needs("jq")
async def test_jq_speaks_json_lines_in_one_line_of_its_language(tmp_path: Path) -> None:
    program = "{request_id} + try {result: (.payload.numbers | add)} catch {error: .}"
    kind = cli_subagent("sums", ["jq", "--unbuffered", "-c", program], [total])
    good, wrong = await answers(kind, tmp_path, {"numbers": [1, 2, 3.5]}, {"numbers": [1, "x"]})
    assert good == 6.5
    assert "SubagentAnswerError: jq of sums: number (1) and string" in wrong


@needs("bc")
async def test_bc_prints_numbers_that_json_has_not(tmp_path: Path) -> None:
    kind = cli_subagent(
        "calc",
        ["bc", "-q"],
        [evaluate],
        protocol=TextLines('{expression}\nprint "{request_id}\\n"', end="{request_id}", answer="number"),
    )
    good, third, wrong = await answers(
        kind, tmp_path, {"expression": "2^10"}, {"expression": "scale=3; 1/3"}, {"expression": "1 +"}
    )
    assert (good, third) == (1024, 0.333)
    assert "SubagentAnswerError: bc of calc: gave an answer that is no number" in wrong


@needs("sqlite3")
async def test_sqlite_answers_with_rows(tmp_path: Path) -> None:
    kind = cli_subagent(
        "books",
        [
            "sqlite3",
            "-batch",
            "-safe",
            "-json",
            ":memory:",
            "-cmd",
            "create table t(a, b); insert into t values('x', 1), ('x', 2)",
        ],
        [find],
        protocol=TextLines(
            ".parameter set $author {author!j}\n"
            "select json_group_array(json_object('b', b)) as found from t where a = $author;\n"
            ".print {request_id}",
            end="{request_id}",
            answer="json",
        ),
    )
    found, none = await answers(kind, tmp_path, {"author": "x"}, {"author": "y' or 1"})
    assert found == [{"found": '[{"b":1},{"b":2}]'}]
    assert none == [{"found": "[]"}]
