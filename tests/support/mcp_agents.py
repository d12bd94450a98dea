"""Agents with the tools that the MCP conformance kit asks for."""

from __future__ import annotations

import asyncio
import uuid
from typing import Annotated, Any, ClassVar, TypedDict

from langgraph.graph import START, StateGraph
from pydantic import Field

from noesium_stream import capability, current_step
from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.event import AgentRef
from noesium_stream.event.standard import Capability
from noesium_stream.log import EventLog

FORM = {"type": "object", "properties": {"confirm": {"type": "boolean"}, "name": {"type": "string"}}}
OBJECT = {"type": "object"}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXT = {"type": "text", "text": "Multiple content types test:"}
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
RESOURCE = {
    "type": "resource",
    "resource": {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    },
}
FORM_OF_NAME = {"type": "object", "properties": {"user_name": {"type": "string"}}}
COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
CONTACT = {"type": "string", "enum": ["phone", "email"]}
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": CONTACT,
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


class Kit(BaseGraphicAgent):
    """The fixtures of the kit's scenarios for tools and tasks."""

    agent_type = "kit"

    @capability("greet")
    def greet(self, name: str) -> str:
        """Say hello."""
        return f"Hello, {name}!"

    @capability("slow_compute")
    async def slow_compute(self, seconds: float, label: str = "") -> str:
        """Take some time."""
        await current_step().sleep(seconds) if seconds > 5 else await asyncio.sleep(seconds)
        return f"{label} computed in {seconds} s"

    @capability("failing_job", tags=("mcp:task",))
    async def failing_job(self) -> str:
        """Fail after a while."""
        await asyncio.sleep(0.7)
        raise ValueError("told to fail")

    @capability("protocol_error_job", tags=("mcp:task",))
    async def protocol_error_job(self) -> Any:
        """Return what no log can hold."""
        await asyncio.sleep(0.7)
        return object()

    @capability("confirm_delete")
    async def confirm_delete(self, filename: str) -> str:
        """Delete a file, if a person agrees."""
        answer = await current_step().interrupt(f"Delete {filename}?", schema=FORM)
        return f"{filename} {'deleted' if answer.approved else 'left'}"

    @capability("multi_input")
    async def multi_input(self) -> list[Any]:
        """Ask two questions at once."""
        step = current_step()
        answers = await asyncio.gather(
            step.interrupt("Who?", schema=FORM), step.interrupt("Really?", schema=FORM)
        )
        return [answer.value for answer in answers]

    @capability("test_tool_with_task", tags=("mcp:input",))
    async def test_tool_with_task(self) -> str:
        """Ask for a name, then work."""
        answer = await current_step().interrupt("Your name?", schema=FORM_OF_NAME)
        return f"Hello, {answer.value}!"

    @capability("test_simple_text")
    def test_simple_text(self) -> str:
        """Say a sentence."""
        return "This is a simple text response for testing."

    @capability("test_error_handling")
    def test_error_handling(self) -> str:
        """Fail."""
        raise ValueError("This tool intentionally returns an error for testing")

    @capability("test_image_content", tags=("mcp:content",))
    def test_image_content(self) -> list[Any]:
        """Show an image."""
        return [IMAGE]

    @capability("test_audio_content", tags=("mcp:content",))
    def test_audio_content(self) -> list[Any]:
        """Play a sound."""
        return [{"type": "audio", "data": "UklGRiQAAABXQVZF", "mimeType": "audio/wav"}]

    @capability("test_embedded_resource", tags=("mcp:content",))
    def test_embedded_resource(self) -> list[Any]:
        """Give a resource."""
        return [RESOURCE]

    @capability("test_multiple_content_types", tags=("mcp:content",))
    def test_multiple_content_types(self) -> list[Any]:
        """Give several contents."""
        return [TEXT, IMAGE, RESOURCE]

    @capability("test_input_required_result_elicitation")
    async def test_input_required_result_elicitation(self) -> str:
        """Ask for a name."""
        answer = await current_step().interrupt("What is your name?", schema=NAME)
        return f"Hello, {answer.value}!"

    @capability("test_input_required_result_request_state")
    async def test_input_required_result_request_state(self) -> str:
        """Ask for a confirmation."""
        await current_step().interrupt("Please confirm", schema=FORM)
        return "state-ok"

    @capability("test_input_required_result_multi_round")
    async def test_input_required_result_multi_round(self) -> str:
        """Ask twice, the second question after the first answer."""
        name = await current_step().interrupt("Step 1: What is your name?", schema=NAME)
        color = await current_step().interrupt("Step 2: What is your favorite color?", schema=COLOR)
        return f"{name.value} {color.value}"

    @capability("test_input_required_result_tampered_state")
    async def test_input_required_result_tampered_state(self) -> str:
        """Ask for a confirmation."""
        await current_step().interrupt("Please confirm", schema=FORM)
        return "confirmed"

    @capability("test_streaming_elicitation")
    async def test_streaming_elicitation(self) -> str:
        """Ask for a name, as the request's answer."""
        answer = await current_step().interrupt("What is your name?", schema=NAME)
        return f"Hello, {answer.value}!"

    @capability("test_missing_capability", tags=("mcp:task",))
    def test_missing_capability(self) -> str:
        """Need a capability of the client."""
        return "done"

    @capability("test_logging_tool")
    def test_logging_tool(self) -> str:
        """Log nothing to the client."""
        return "done"

    @capability("test_custom_header")
    def test_custom_header(
        self, region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]
    ) -> str:
        """Take an argument that clients repeat in a header."""
        return f"in {region}"


class Told(TypedDict, total=False):
    name: str


class Stages(BaseGraphicAgent):
    """Three nodes, each of which is progress."""

    agent_type = "stages"
    capabilities = (Capability(id="test_tool_with_progress", input_schema=OBJECT, output_schema={}),)

    def get_state_class(self) -> type[Any]:
        return Told

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Told)
        graph.add_sequence([(name, _stage) for name in ("begin", "middle", "end")])
        return graph.add_edge(START, "begin")

    def result(self, state: dict[str, Any]) -> str:
        return "done"


class Draft(BaseGraphicAgent):
    """Its tool has what JSON Schema 2020-12 knows."""

    agent_type = "draft"
    capabilities = (Capability(id="json_schema_2020_12_tool", input_schema=SCHEMA_2020_12, output_schema={}),)

    def get_state_class(self) -> type[Any]:
        return Told

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        return StateGraph(Told).add_node("done", _stage).add_edge(START, "done")


class Changes(BaseGraphicAgent):
    """Its tool adds a tool; `log` is where."""

    agent_type = "changes"
    log: ClassVar[EventLog]

    @capability("test_trigger_tool_change")
    async def test_trigger_tool_change(self) -> str:
        """Register another capability."""
        added = Capability(
            id=f"added.{uuid.uuid4().hex[:8]}", input_schema={"type": "object"}, output_schema={}
        )
        await CapabilityRegistry(self.log).register(AgentRef("changes-1", "changes"), added)
        return added.id


def _stage(state: Told) -> dict[str, Any]:
    return {}


AGENTS = (Kit, Stages, Draft, Changes)
