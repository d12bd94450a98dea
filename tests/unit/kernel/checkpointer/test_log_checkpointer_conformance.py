"""LangGraph's own conformance kit for checkpointers, on both embedded logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from noesium_stream.kernel import LogCheckpointer
from noesium_stream.log import open_log

URLS = ["memory://", "sqlite:///{}/threads.db"]


@pytest.mark.parametrize("capability", list(Capability), ids=lambda capability: capability.value)
@pytest.mark.parametrize("url", URLS)
async def test_it_conforms_with_a_log_of_its_own(url: str, capability: Capability, tmp_path: Path) -> None:
    async def factory() -> AsyncIterator[LogCheckpointer]:
        async with LogCheckpointer(open_log(url.format(tmp_path))) as saver:
            yield saver

    await conforms(RegisteredCheckpointer("own", factory), capability)  # type: ignore[arg-type]


@pytest.mark.parametrize("capability", list(Capability), ids=lambda capability: capability.value)
@pytest.mark.parametrize("url", URLS)
async def test_it_conforms_on_an_open_log(url: str, capability: Capability, tmp_path: Path) -> None:
    async def factory() -> AsyncIterator[LogCheckpointer]:
        log = await open_log(url.format(tmp_path))
        yield LogCheckpointer(log)
        await log.close()

    await conforms(RegisteredCheckpointer("open", factory), capability)  # type: ignore[arg-type]


async def conforms(registered: RegisteredCheckpointer, capability: Capability) -> None:
    report = await validate(registered, capabilities={capability.value})
    result = report.results[capability.value]
    assert result.detected
    assert result.failures == []
    assert result.tests_passed >= 5
