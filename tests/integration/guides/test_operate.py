"""The guide "operate", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("operate", tmp_path)
    address = f"kafka://localhost:{reader.port}"
    assert reader.bash("broker up").stdout.splitlines()[-1] == address
    try:
        with reader.terminal("librarian") as librarian, reader.terminal("researcher") as researcher:
            librarian.wait_for_error_line(f"at work on {address}", LONG_S)
            researcher.wait_for_error_line(f"at work on {address}", LONG_S)
            done = reader.bash("ask kafka")
            assert "process dies" in done.stdout
            assert "▸ corpus.search  librarian" in done.stdout
            assert "noesium.agent.researcher.journal" in done.stdout
            found = reader.bash("find runs")
            assert found.stdout.count("  completed  ") == 1
            assert "There are no such runs" in found.stderr
    except BaseException:
        reader.shell("noesium broker down")
        raise
    assert "Apache Kafka" in reader.bash("broker down").stdout
    printed = reader.bash("metrics").stdout
    for metric in ("events.emitted", "events.processed", "kernel.node.duration", "capability.resolution"):
        assert f'"name": "noesium.{metric}' in printed
    reader.end()
