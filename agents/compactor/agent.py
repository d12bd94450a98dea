r"""The compactor as an agent: one step writes a few summaries, until there is nothing to sum up.

compact -> compact -> ... -> end

An agent that holds a conversation calls `memory.compact` with the scope `session`: a called run is of the
session of its caller. Programs and people start it for `user:`, `tenant:` and `shared`.
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.errors import CapabilityError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.standard import (
    Capability,
    CapabilityType,
    DeterminismClass,
    LatencyClass,
    SideEffectClass,
)
from noesium_stream.kernel import kernel_node
from noesium_stream.memory.compaction import (
    KEEP,
    MAX_SIZE,
    SIZE,
    ExcerptSummarizer,
    ModelSummarizer,
    Summarizer,
    compact,
)

MAX_STEPS: Final = 500
"""Steps of one run: of more facts the next run sums up the rest."""
MAX_KEEP: Final = 500

MEMORY_COMPACT: Final = Capability(
    id="memory.compact",
    version="1.0.0",
    description="Sums up the oldest facts of a scope of memory; readers see the summaries instead.",
    capability_type=CapabilityType.SUBAGENT,
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["scope", "prefix"],
        "properties": {
            "scope": {
                "type": "string",
                "minLength": 1,
                "maxLength": 256,
                "description": "`session`: the caller's.",
            },
            "prefix": {"type": "string", "minLength": 1, "maxLength": 900, "description": "How keys begin."},
            "keep": {"type": "integer", "minimum": 0, "maximum": MAX_KEEP, "default": KEEP},
            "size": {"type": "integer", "minimum": 2, "maximum": MAX_SIZE, "default": SIZE},
        },
        "additionalProperties": False,
    },
    output_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["summaries", "parts", "complete"],
        "properties": {
            "summaries": {"type": "integer", "minimum": 0, "description": "How many were written."},
            "parts": {
                "type": "integer",
                "minimum": 0,
                "description": "How many facts and summaries they replace.",
            },
            "complete": {"type": "boolean", "description": "False: there is more to be summed up."},
        },
    },
    side_effects=SideEffectClass.IDEMPOTENT,
    latency_class=LatencyClass.SLOW,
    determinism_class=DeterminismClass.NONDETERMINISTIC,
    tags=["memory"],
)


class CompactorOptions(BaseModel):
    """What the compactor can be told."""

    model: str | None = Field(
        default=None, description="Let this model write the summaries, as PROVIDER:NAME. Default: excerpts."
    )


class CompactState(TypedDict, total=False):
    """The state of a run; all of it is JSON."""

    scope: str
    prefix: str
    keep: int
    size: int
    steps: int
    summaries: int
    parts: int
    complete: bool


class Compactor(BaseGraphicAgent):
    """Sums up old facts of memory; each summary names what it stands for, and gives it back."""

    agent_type = "compactor"
    version = "1.0.0"
    Options = CompactorOptions
    capabilities = (MEMORY_COMPACT,)

    def get_state_class(self) -> type[Any]:
        """See `CompactState`."""
        return CompactState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(CompactState)
        graph.add_node("compact", self.compact)
        graph.add_edge(START, "compact")
        graph.add_conditional_edges("compact", self.next_after_compact, ["compact", END])
        return graph

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        """The input of `memory.compact`, with its defaults.

        Raises:
            CapabilityError: a part of it is not possible.
        """
        scope, prefix = input.get("scope"), input.get("prefix")
        for name, text, most in (("scope", scope, 256), ("prefix", prefix, 900)):
            if not isinstance(text, str) or not 0 < len(text) <= most:
                raise CapabilityError(
                    f"memory.compact: {name} is {short(text)}, and not a text of 1 to {most}."
                )
        found = {"scope": scope, "prefix": prefix, "steps": 0, "summaries": 0, "parts": 0, "complete": False}
        for name, default, low, high in (("keep", KEEP, 0, MAX_KEEP), ("size", SIZE, 2, MAX_SIZE)):
            number = input.get(name, default)
            if type(number) is not int or not low <= number <= high:
                raise CapabilityError(f"memory.compact: {name} is {short(number)}, and not {low} to {high}.")
            found[name] = number
        return found

    def result(self, state: dict[str, Any]) -> Any:
        """The output of `memory.compact`."""
        return {name: state[name] for name in ("summaries", "parts", "complete")}

    @kernel_node(deterministic=False, entropy_sources=["model"])
    async def compact(self, state: CompactState) -> dict[str, Any]:
        """Write the next summaries; they commit with this step."""
        summarizer: Summarizer = ExcerptSummarizer() if self.llm is None else ModelSummarizer(self.llm)
        memory = self.memory.at(state["scope"])
        done = await compact(memory, state["prefix"], summarizer, keep=state["keep"], size=state["size"])
        return {
            "steps": state["steps"] + 1,
            "summaries": state["summaries"] + len(done.summaries),
            "parts": state["parts"] + done.parts,
            "complete": not done.summaries,
        }

    def next_after_compact(self, state: CompactState) -> str:
        """Once more, until nothing is left to be summed up."""
        return END if state["complete"] or state["steps"] >= MAX_STEPS else "compact"
