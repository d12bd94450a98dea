"""The registry of tools: choosing among many and showing the chosen ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from noesium_stream.tool import AtomicTool, ToolSource
from noesium_stream.tool.convert import ToolConverter
from noesium_stream.tool.registry import ToolRegistry
from tests.bench.harness import Figure, Side, interleave, percentile

_VERBS = ("find", "read", "write", "send", "delete", "count", "list", "update", "open", "close")
_THINGS = ("customer", "order", "invoice", "mail", "file", "page", "report", "ticket", "account", "payment")
_CHOICES = 500


@dataclass(frozen=True)
class ToolRegistrySettings:
    """Sizes of the bench."""

    tools: int = 1_000
    repetitions: int = 5


def many(count: int) -> ToolRegistry:
    """Tools of ten servers, with names and descriptions that share their words."""
    found = ToolRegistry()
    sources = tuple(ToolSource)
    for number in range(count):
        verb, thing = _VERBS[number % 10], _THINGS[number // 10 % 10]
        found.register(
            AtomicTool(
                f"{verb}_{thing}_{number}",
                f"{verb.title()} the {thing} of a customer by its number, and say what was found.",
                {"type": "object", "properties": {thing: {"type": "string"}}, "required": [thing]},
                source=sources[number % len(sources)],
                toolkit_name=f"server{number % 10}",
                tags=(f"category:{thing}",),
            )
        )
    return found


def shown(chosen: list[AtomicTool]) -> list[dict[str, Any]]:
    """What a model is shown of tools."""
    return [ToolConverter.to_function(one) for one in chosen]


async def measure_choose(settings: ToolRegistrySettings) -> list[Figure]:
    """Choose and show by name, by tags and by words, beside looking at every tool."""
    tools = many(settings.tools)
    every = list(tools)

    def by_words(number: int) -> list[AtomicTool]:
        return tools.choose(f"please {_VERBS[number % 10]} the {_THINGS[number // 10 % 10]} of a customer")

    def by_all_words(number: int) -> list[AtomicTool]:
        words = {_VERBS[number % 10], _THINGS[number // 10 % 10]}
        return sorted(every, key=lambda one: -sum(word in one.description.lower() for word in words))[:20]

    def by_tags(number: int) -> list[AtomicTool]:
        return tools.list_tools("mcp", (f"category:{_THINGS[number % 10]}",))[:20]

    def by_all_tags(number: int) -> list[AtomicTool]:
        wanted = {"source:mcp", f"category:{_THINGS[number % 10]}"}
        return [one for one in every if wanted <= set(one.all_tags)][:20]

    def by_name(number: int) -> list[AtomicTool]:
        return [tools.get_by_name(every[number % len(every)].name)]

    def by_all_names(number: int) -> list[AtomicTool]:
        name = every[number % len(every)].name
        return [one for one in every if one.name == name]

    figures = []
    for what, ours, theirs in (
        ("words", by_words, by_all_words),
        ("tags", by_tags, by_all_tags),
        ("name", by_name, by_all_names),
    ):
        values = await interleave({"ours": _median(ours), "theirs": _median(theirs)}, settings.repetitions)
        figures.append(
            Figure(
                "tools",
                f"choose among {settings.tools:,} tools by {what} and show, p50",
                "ms",
                Side("by index", values["ours"]),
                Side("over all tools", values["theirs"]),
                target=1.0,
                at_least=False,
                absolute=True,
            )
        )
    return figures


def _median(choose: Callable[[int], list[AtomicTool]]) -> Any:
    async def measured() -> float:
        took = []
        for number in range(_CHOICES):
            begun = perf_counter()
            shown(choose(number))
            took.append(perf_counter() - begun)
        return percentile(took, 0.5) * 1e3

    return measured
