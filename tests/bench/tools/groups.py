"""The groups of the bench of tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.bench.harness import Figure
from tests.bench.tools.calls import ToolSettings, measure_calls, measure_judging
from tests.bench.tools.registry import ToolRegistrySettings, measure_choose
from tests.bench.tools.sandbox import measure_sandbox
from tests.support.kafka import KafkaServer

Group = Callable[[ToolSettings, KafkaServer], Awaitable[list[Figure]]]


async def _choose(settings: ToolSettings, kafka: KafkaServer) -> list[Figure]:
    return await measure_choose(ToolRegistrySettings(repetitions=settings.repetitions))


async def _sandbox(settings: ToolSettings, kafka: KafkaServer) -> list[Figure]:
    return await measure_sandbox(settings.repetitions)


OF_TOOLS: dict[str, Group] = {
    "calls": measure_calls,
    "judging": measure_judging,
    "choose": _choose,
    "sandbox": _sandbox,
}
