"""The official conformance kit of MCP: `noesium mcp serve`, and the client of agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import mcp_kit
from tests.support.mcp_agents import AGENTS, Changes
from tests.support.mcp_kit import CURRENT, PREVIOUS
from tests.support.mcp_serving import Place
from tests.support.npm import needs_npm

pytestmark = [needs_npm, pytest.mark.conformance]


@pytest.mark.parametrize("revision", [CURRENT, PREVIOUS])
async def test_the_server_passes_all_checks_but_those_of_what_it_does_not_offer(
    revision: str, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    async with place.working(*AGENTS) as log:
        Changes.log = log
        with place.serving("--wait", "5") as server:
            for number in range(mcp_kit.PLAYS):
                checks = await mcp_kit.server_checks(server.url, revision, tmp_path / f"kit-{number}")
                if mcp_kit.as_expected(checks, revision):
                    break
    assert sorted(checks["FAILURE"]) == mcp_kit.expected_failures(revision)
    assert len(checks["SUCCESS"]) == mcp_kit.SERVER_PASSES[revision]


@pytest.mark.parametrize(("revision", "scenario"), mcp_kit.CLIENT_PASSES)
async def test_the_client_passes(revision: str | None, scenario: str) -> None:
    done = await mcp_kit.client_scenario(revision, scenario)
    assert "OVERALL: PASSED" in done.stdout + done.stderr, done.stdout + done.stderr
    assert done.returncode == 0


async def test_every_scenario_of_the_client_is_played_or_not_offered_for_a_reason() -> None:
    listed = await mcp_kit.client_scenarios()
    played = {scenario for _, scenario in mcp_kit.CLIENT_PASSES}
    assert played | mcp_kit.not_offered(listed) == listed
    assert not played & mcp_kit.not_offered(listed)
