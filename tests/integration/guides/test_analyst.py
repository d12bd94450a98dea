"""The guide "analyst", followed from top to bottom, with a server on this machine in place of OpenAI's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.model_server import model_server, said
from tests.support.pages import LONG_S, read_guide

STATEMENT = 'SELECT "item", sum("cents") AS "cents" FROM "orders" GROUP BY 1 ORDER BY 2 DESC'


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("analyst", tmp_path)
    asked = reader.bash("asked").stdout.splitlines()
    shown = reader.output("item  sum").splitlines()
    assert asked[:7] == shown[:7]
    chart = Path(asked[7].removeprefix("Chart  "))
    assert chart.read_text().startswith("<svg")
    cannot = reader.bash("cannot").stdout
    assert cannot.startswith(reader.output("I cannot answer"))
    with model_server([said(json.dumps({"sql": STATEMENT, "cannot": ""}))]) as server:
        reader.env["OPENAI_BASE_URL"] = server.openai
        reader.env["OPENAI_API_KEY"] = "sk-of-the-test"
        by_model = reader.bash("model").stdout
        assert len(server.requests) == 1
    assert by_model.splitlines()[2:4] == ["oil     900", "tea     650"]
    granted = reader.bash("granted").stdout
    assert "orders" in granted
    assert "1 row" not in granted
    assert "I cannot answer this: It names no table; there are 'orders'." in granted
    reader.end()
