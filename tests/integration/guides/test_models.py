"""The guide "models", followed from top to bottom, with a server on this machine in place of OpenAI's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.model_server import model_server, outage, said
from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("models", tmp_path)
    answers = [said("Every page was much loved"), said('{"good": true, "reason": "loved it"}')]
    with model_server(answers) as server:
        reader.env["OPENAI_BASE_URL"] = server.openai
        reader.env["OPENAI_API_KEY"] = "sk-of-the-test"
        done = reader.bash("critic")
        shown = json.loads(done.stdout)
        assert shown["answer"]["about"] == "Every page was much loved"
        assert shown["answer"]["verdict"] == {"good": True, "reason": "loved it"}
        costs = reader.bash("costs").stdout
        assert len(server.requests) == 2
        server.script(said("It is too long"), said('{"good": false, "reason": "too long"}'))
        with reader.terminal("treasurer") as treasurer:
            treasurer.wait_for_error_line("at work on sqlite:///", LONG_S)
            listed = reader.bash("account")
            treasurer.signal()
            treasurer.wait()
        assert "no treasurer runs" not in listed.stderr
        server.script(outage(), said("It is on its way."))
        switched = reader.bash("desk").stdout
        assert "It is on its way." in switched
        assert "model.switched" in switched
    reader.end()
    assert reader.output("account   ") in listed.stdout
    assert costs == reader.output("model  ")
