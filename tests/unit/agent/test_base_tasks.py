"""`tasks` of an agent class: what it takes has to be what it offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.errors import ConfigError
from noesium_stream.log import open_log
from tests.support.delegating import State, offer, provider, working


async def nothing(state: State) -> State:
    return {}


@pytest.mark.parametrize(
    ("tasks", "message", "hint"),
    [
        (("sum.upp",), "takes tasks of 'sum.upp', which it does not offer", "Did you mean 'sum.up'?"),
        (("sum up",), "cannot have a topic", "single dots"),
    ],
)
async def test_an_agent_takes_tasks_of_what_it_offers(
    tmp_path: Path, tasks: tuple[str, ...], message: str, hint: str
) -> None:
    log = await open_log("memory://")
    agent = provider("taker", nothing, offer("sum.up"), offer("sum up"), tasks=tasks)
    with pytest.raises(ConfigError, match=message) as refused:
        async with working(log, tmp_path, agent):
            pass
    assert hint in (refused.value.hint or "")
    await log.close()
