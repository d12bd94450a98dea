"""The guide "capability", followed from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noesium_stream.cli.exits import FAILED, INTERRUPTED
from tests.support.pages import LONG_S, Reader, guide, read_guide


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return read_guide("capability", tmp_path)


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(reader: Reader) -> None:
    with reader.terminal("market worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        listed = reader.bash("market listed").stdout
        assert "What an item costs here." in listed
        assert "offers market.price 1.0.0" in listed
        explained = reader.bash("market explained").stdout
        assert "its weight 1 is below 3" in explained
        _, _, chosen = explained.partition("{")
        assert json.loads("{" + chosen)["chosen"]["agent_id"] in ("shop", "stall")
        assert "taken: the only one" in reader.bash("market past").stdout
        assert json.loads(reader.bash("basket").stdout)["total"] in (12, 15)
        shortened = json.loads(reader.bash("album").stdout)["short"]
        titles = (("moun", "mntn"), ("harb", "hrbr"), ("vill", "vllg"), ("brid", "brdg"), ("fore", "frst"))
        assert all(got in either for got, either in zip(shortened, titles, strict=True))
        worker.signal()
        assert worker.wait() == INTERRUPTED
    refused = reader.bash("market checked", code=FAILED).stdout
    assert refused in guide("capability").read_text(encoding="utf-8")
    watched = reader.bash("market watched").stdout.splitlines()
    assert (watched[0], watched[1], watched[-1]) == ("2 offers", "market.price 1.2.0 of kiosk", "1 is new")
    assert reader.bash("desk program").stdout.splitlines() == [
        "Permit a kiosk? desk > office > clerk",
        "ann",
        "desk cancelled",
        "  office cancelled",
        "    clerk cancelled",
    ]
    assert reader.bash("recital").stdout == "ONCE UPON A TIME \n"
    reader.end()
