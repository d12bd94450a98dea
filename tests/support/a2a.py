"""A2A in tests: agents to be opened, a worker of them, the server as a process, and the SDK's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypedDict

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.client.client import ClientCallContext
from a2a.types import Message, Part, Role, SendMessageRequest, StreamResponse, Task
from google.protobuf.json_format import MessageToDict
from langgraph.graph import START, StateGraph

from noesium_stream import capability, current_step
from noesium_stream.a2a.parts import part_of, to_struct, value_of
from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import Capability
from tests.support.command import Running
from tests.support.log_folder import LogFolder

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Desk(BaseGraphicAgent):
    """Offers functions: one takes a text, one asks a person, one fails."""

    agent_type = "desk"

    @capability("desk.upper")
    def upper(self, text: str) -> str:
        """Say it in capitals."""
        if text == "fail":
            raise ValueError("told to fail")
        return text.upper()

    @capability("desk.refund")
    async def refund(self, amount: int, why: str = "") -> dict[str, Any]:
        """Pay back, if somebody agrees."""
        answer = await current_step().interrupt(f"Refund {amount}?")
        return {"approved": answer.approved, "amount": amount, "by": answer.answered_by}

    @capability("desk.name")
    async def name(self, size: int) -> str:
        """Ask for a name."""
        answer = await current_step().interrupt("Which name?", schema={"type": "string", "maxLength": size})
        return f"it is {answer.value}"

    @capability("desk.talk")
    async def talk(self, turns: int) -> list[Any]:
        """Hear some messages."""
        heard = []
        for _ in range(turns):
            heard.append(await current_step().signal("message"))
        return heard

    @capability("desk.wait")
    async def wait(self) -> str:
        """Wait for a signal."""
        return str(await current_step().signal("go"))


class Walk(TypedDict, total=False):
    text: str
    stops: list[str]


class Tour(BaseGraphicAgent):
    """Three nodes, each of which waits for a signal of its name."""

    agent_type = "tour"
    capabilities = (Capability(id="tour.walk", input_schema=TEXT, output_schema={}),)

    def get_state_class(self) -> type[Any]:
        return Walk

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Walk)
        before = START
        for name in ("first", "second", "third"):
            graph.add_node(name, self.pause)
            graph.add_edge(before, name)
            before = name
        return graph

    async def pause(self, state: Walk) -> dict[str, Any]:
        await current_step().signal(current_step().node)
        return {"stops": [*state.get("stops", []), current_step().node]}

    def result(self, state: dict[str, Any]) -> Any:
        return {"text": state["text"], "stops": state["stops"]}


class Place(LogFolder):
    """A folder with a log in it, and A2A servers on that log."""

    @contextmanager
    def serving(self, *args: str) -> Iterator[Served]:
        """A server process at a free port."""
        with self.folder.running("a2a", "serve", "--port", "0", "--log", self.url, *args) as process:
            line = process.wait_for_error_line("serving A2A at ")
            yield Served(process, line.split()[3])


class Served:
    """A server process and its URL."""

    def __init__(self, process: Running, url: str) -> None:
        self.process = process
        self.url = url

    @asynccontextmanager
    async def client(
        self, *, streaming: bool = False, token: str | None = None, binding: str = "JSONRPC"
    ) -> AsyncIterator[Client]:
        """The SDK's own client of the server."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(120), trust_env=False) as http:
            config = ClientConfig(
                streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding]
            )
            yield await create_client(self.url, config)

    async def post(self, body: bytes | dict[str, Any], **headers: str) -> httpx.Response:
        """One request, as it is written."""
        sent: dict[str, Any] = {"json": body} if isinstance(body, dict) else {"content": body}
        async with httpx.AsyncClient(timeout=120, trust_env=False) as http:
            return await http.post(self.url, headers={"A2A-Version": "1.0", **headers}, **sent)

    async def call(self, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        """The answer to one JSON-RPC request."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: dict[str, Any] = (await self.post(body, **headers)).json()
        return answer


def message(id: str, *values: Any, skill: str | None = None, **fields: Any) -> SendMessageRequest:
    """A message with these values as its parts."""
    metadata = {name: fields.pop(name) for name in ("version", "question_id") if name in fields}
    if skill is not None:
        metadata["skill"] = skill
    parts = [value if isinstance(value, Part) else part_of(value) for value in values]
    made = Message(message_id=id, role=Role.ROLE_USER, parts=parts, **fields)
    if metadata:
        made.metadata.CopyFrom(to_struct(metadata))
    return SendMessageRequest(message=made)


async def sent(client: Client, request: SendMessageRequest, *, at_once: bool = False) -> Task:
    """The task that a message gives, when it has ended or waits; or at once."""
    request.configuration.return_immediately = at_once
    [response] = [response async for response in client.send_message(request)]
    return response.task


def after(cursor: str) -> ClientCallContext:
    """The context of a request that goes on behind a cursor."""
    return ClientCallContext(service_parameters={"Last-Event-ID": cursor})


def seen(response: StreamResponse) -> dict[str, Any]:
    """An event of a stream, in short: what changed, and its cursor."""
    kind = response.WhichOneof("payload")
    event = MessageToDict(getattr(response, kind))
    labels = event["metadata"]["noesium"]
    found = {"kind": kind, "cursor": labels.get("cursor")}
    if "piece" in labels:
        return {
            **found,
            "piece": value_of(response.artifact_update.artifact.parts[0]),
            "append": event.get("append"),
        }
    if "node" in labels:
        found["node"] = labels["node"]
    if "status" in event:
        found["state"] = event["status"]["state"].removeprefix("TASK_STATE_")
    return found


async def until_seen(events: list[dict[str, Any]], **wanted: str) -> None:
    """Return when a stream that is read elsewhere has given such an event."""
    while not any(wanted.items() <= event.items() for event in events):
        await asyncio.sleep(0.005)
