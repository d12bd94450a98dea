"""The guide "secure", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("secure", tmp_path)
    address = f"kafka://localhost:{reader.port}"
    made = reader.bash("keys")
    try:
        assert "alice-1 is trusted for alice" in made.stderr
        assert [line.split()[0] for line in made.stdout.splitlines()[-3:]] == ["agents", "alice-1", "ops"]
        reader.bash("worker key")
        with reader.terminal("agents") as agents:
            agents.wait_for_error_line(f"at work on {address}", LONG_S)
            assert "process dies" in reader.bash("alice").stdout
            assert reader.bash("proof").stdout.endswith("proven\n")
            refused = reader.bash("refused").stderr
            assert "'alice' may not start runs of librarian" in refused
            assert "the key 'alice-1' was revoked at" in refused
    except BaseException:
        reader.shell("noesium broker down")
        raise
    reader.end()
