"""A program that cannot be started is one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.errors import SandboxError
from noesium_stream.tool.sandbox.running import spawned
from noesium_stream.tool.sandbox.walled import WalledCommand


async def test_a_program_that_may_not_be_executed_is_an_error_that_says_what_to_allow(tmp_path: Path) -> None:
    program = tmp_path / "walls"
    program.write_text("")
    with pytest.raises(SandboxError, match=r"cannot be started: .*Permission denied") as refused:
        await spawned(WalledCommand((str(program),), {}, ()))
    assert f"Let this user execute {program}" in str(refused.value.hint)
