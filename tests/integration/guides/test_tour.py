"""The guide "tour", followed from top to bottom."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from noesium_stream.cli.exits import INTERRUPTED
from tests.chaos.desk_run import shown
from tests.support.command import Running
from tests.support.pages import LONG_S, Reader, read_guide
from tests.support.sandboxes import sandbox_named

CALLS = ("price", "with_tax", "stock__reserve", "shell", "run_skill_script")


def orders(reader: Reader) -> list[str]:
    return (reader.path / "work" / "orders" / "today.txt").read_text().splitlines()


def wait_asked(run: Running, times: int) -> None:
    run.wait_for(lambda run: sum("noesium approve" in line for line in run.err) >= times, LONG_S)


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    sandbox_named("bubblewrap")
    reader = read_guide("tour", tmp_path)
    reader.bash("folder")
    with reader.terminal("order") as run:
        wait_asked(run, 1)
        assert not list((reader.path / "work" / "orders").iterdir()), "it asks before it writes"
        reader.bash("first yes")
        wait_asked(run, 2)
        assert orders(reader) == ["oil 1080 shelf 3"]
        run.signal(signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
    reader.bash("second yes")
    assert "*** oil 1080 shelf 3 ***" in reader.bash("again").stdout
    once = reader.bash("once").stdout
    assert shown(once) == Counter(CALLS)
    assert once.splitlines()[-1] == "oil 1080 shelf 3"
    assert orders(reader) == ["oil 1080 shelf 3"]
    [known] = json.loads(reader.shell("noesium runs --json").stdout)
    reader.shell(f"noesium verify {known['run_id']} --graph tour")
    with reader.terminal("worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        with reader.terminal("serve") as server:
            server.wait_for_error_line("serving MCP at http://127.0.0.1:", LONG_S)
            said = reader.bash("called").stdout.splitlines()
            server.signal()
            assert server.wait() == INTERRUPTED
        worker.signal()
        assert worker.wait() == INTERRUPTED
    assert [line.split(" be called")[0] for line in said] == [
        "May shell",
        "May run_skill_script",
        "*** tea 360 shelf 3 ***",
    ]
    assert orders(reader) == ["oil 1080 shelf 3", "tea 360 shelf 3"]
    reader.end()
