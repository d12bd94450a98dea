"""`noesium a2a serve`, by the SDK's own client over HTTP."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, A2AClientError
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Part,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from noesium_stream.a2a.parts import value_of
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.client import Client
from noesium_stream.event.envelope import AgentRef
from tests.support.a2a import Desk, Place, Tour, after, message, seen, sent, until_seen
from tests.support.reading import eventually


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def state(task: Any) -> str:
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_")


def result(task: Any) -> Any:
    [artifact] = task.artifacts
    [part] = artifact.parts
    return value_of(part)


async def test_the_card_has_a_skill_for_each_live_capability(place: Place) -> None:
    async with place.working(Desk, Tour):
        with place.serving() as server:
            async with httpx.AsyncClient(trust_env=False) as http:
                card = await A2ACardResolver(http, server.url).get_agent_card()
        with place.serving("tour") as server:
            async with httpx.AsyncClient(trust_env=False) as http:
                narrow = await A2ACardResolver(http, server.url).get_agent_card()
    assert [skill.id for skill in card.skills] == [
        *("desk.name", "desk.refund", "desk.talk", "desk.upper", "desk.wait", "tour.walk")
    ]
    upper = next(skill for skill in card.skills if skill.id == "desk.upper")
    assert upper.description == "Say it in capitals."
    assert "text/plain" in upper.input_modes
    bindings = [(one.protocol_binding, one.protocol_version) for one in card.supported_interfaces]
    assert bindings == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")]
    assert [skill.id for skill in narrow.skills] == ["tour.walk"]
    assert narrow.name == "tour"


async def test_a_message_starts_a_run_and_sent_again_meets_it(place: Place) -> None:
    async with place.working(Desk) as log:
        with place.serving() as server:
            async with server.client() as client:
                first = await sent(client, message("m1", "good day", skill="desk.upper"))
                again = await sent(client, message("m1", "good day", skill="desk.upper"))
                other = await sent(client, message("m2", {"text": "good night"}, skill="desk.upper"))
                with pytest.raises(InvalidParamsError, match="another content before"):
                    await sent(client, message("m1", "good bye", skill="desk.upper"))
                got = await client.get_task(GetTaskRequest(id=first.id))
        async with Client(log) as runs:
            assert len(await runs.list_runs()) == 2
    assert (state(first), result(first)) == ("COMPLETED", "GOOD DAY")
    assert first == again == got
    assert result(other) == "GOOD NIGHT"
    assert [part.text for part in first.history[0].parts] == ["good day"]


async def test_a_message_meets_itself_after_its_skill_was_withdrawn_and_offered_by_another(
    place: Place,
) -> None:
    class Other(Desk):
        agent_type = "other"

    async with place.working(Desk, Other) as log:
        with place.serving() as server:
            async with server.client() as client:
                first = await sent(client, message("m1", "good day", skill="desk.upper"))
                agent_type = first.id.partition(".")[0]
                registry = CapabilityRegistry(log)
                entry = next(one for one in await registry.find("desk.upper") if one.agent_type == agent_type)
                by = AgentRef(entry.agent_id, agent_type)
                await registry.deprecate(by, "desk.upper", entry.version, "no more")
                again = await sent(client, message("m1", "good day", skill="desk.upper"))
                other = await sent(client, message("m2", "good day", skill="desk.upper"))
    assert again == first
    assert other.id.partition(".")[0] != agent_type


async def test_what_cannot_be_an_input_is_refused_in_one_sentence(place: Place) -> None:
    async with place.working(Desk) as log:
        with place.serving() as server:
            async with server.client() as client:
                for request, said in [
                    (message("m1", "x"), "say which skill"),
                    (message("m1", "x", skill="desk.none"), "No skill desk.none"),
                    (message("m1", {"text": 7}, skill="desk.upper"), "input.text"),
                    (message("m1", {"text": "a"}, {"text": "b"}, skill="desk.upper"), "one part of data"),
                    (message("m1", [1], skill="desk.upper"), "no JSON object"),
                    (message("m1", "7", skill="desk.wait"), "send one part of data"),
                    (message("m1", {"amount": float(2**60)}, skill="desk.refund"), "beyond 2"),
                    (message("m" * 300, "x", skill="desk.upper"), "message_id"),
                    (message("m1", "x", skill="desk.upper", version="^2"), "No skill desk.upper"),
                    (message("m1", "x", skill="desk.upper", version="new"), "not a version range"),
                ]:
                    with pytest.raises(InvalidParamsError, match=said):
                        await sent(client, request)
                with pytest.raises(ContentTypeNotSupportedError):
                    await sent(client, message("m1", Part(url="https://example.com/x"), skill="desk.upper"))
        async with Client(log) as runs:
            assert await runs.list_runs() == []


async def test_a_question_is_answered_by_the_next_message_of_the_task(place: Place) -> None:
    async with place.working(Desk):
        with place.serving() as server:
            async with server.client() as client:
                asked = await sent(client, message("m1", {"amount": 70}, skill="desk.refund"))
                assert state(asked) == "INPUT_REQUIRED"
                question = asked.status.message.parts[1]
                assert value_of(question)["question"] == "Refund 70?"
                with pytest.raises(InvalidParamsError, match="no answer"):
                    await sent(client, message("m2", "please do not", task_id=asked.id))
                done = await sent(client, message("m3", {"approved": True}, task_id=asked.id))
                again = await sent(client, message("m3", {"approved": True}, task_id=asked.id))
                with pytest.raises(UnsupportedOperationError, match="has ended"):
                    await sent(client, message("m4", "no", task_id=asked.id))
                name = await sent(client, message("m5", {"size": 5}, skill="desk.name"))
                with pytest.raises(InvalidParamsError, match="value"):
                    await sent(client, message("m6", "much too long", task_id=name.id))
                named = await sent(client, message("m7", "Anna", task_id=name.id))
    assert result(done) == {"amount": 70, "approved": True, "by": "a2a"}
    assert done == again
    assert [(one.role, one.message_id) for one in done.history][0::2] == [(1, "m1"), (1, "m3")]
    assert result(named) == "it is Anna"


async def test_a_message_to_a_task_that_asks_nothing_is_a_signal_to_its_run(place: Place) -> None:
    async with place.working(Desk):
        with place.serving("--wait", "0") as server:
            async with server.client() as client:
                talk = await sent(client, message("m1", {"turns": 2}, skill="desk.talk"), at_once=True)
                for _ in range(2):
                    await sent(client, message("m2", "first", task_id=talk.id))
                await sent(client, message("m3", {"n": 2}, task_id=talk.id))

                async def done() -> Any:
                    task = await client.get_task(GetTaskRequest(id=talk.id))
                    return task if state(task) == "COMPLETED" else None

                await eventually(done)
                ended = await done()
                again = await sent(client, message("m3", {"n": 2}, task_id=talk.id))
                with pytest.raises(UnsupportedOperationError, match="has ended"):
                    await sent(client, message("m4", "more", task_id=talk.id))
    assert result(ended) == ["first", {"n": 2}]
    assert [one.message_id for one in ended.history] == ["m1", "m2", "m3"]
    assert again == ended


async def test_the_binding_to_plain_http_does_the_same(place: Place) -> None:
    async with place.working(Desk):
        with place.serving() as server:
            async with server.client(binding="HTTP+JSON") as client:
                asked = await sent(client, message("m1", {"amount": 70}, skill="desk.refund"))
                done = await sent(client, message("m2", "no", task_id=asked.id))
                got = await client.get_task(GetTaskRequest(id=asked.id))
                listed = await client.list_tasks(ListTasksRequest())
                waiting = await sent(client, message("m3", {}, skill="desk.wait"), at_once=True)
                cancelled = await client.cancel_task(CancelTaskRequest(id=waiting.id))
                with pytest.raises(InvalidParamsError, match="No skill"):
                    await sent(client, message("m4", "x", skill="desk.none"))
            async with server.client(binding="HTTP+JSON", streaming=True) as client:
                request = message("m5", "good day", skill="desk.upper")
                events = [seen(response) async for response in client.send_message(request)]
            raw = await server.post(b"{")
    assert result(done) == {"amount": 70, "approved": False, "by": "a2a"}
    assert done == got
    assert [task.id for task in listed.tasks] == [asked.id]
    assert state(cancelled) == "CANCELED"
    assert events[0]["kind"] == "task"
    assert events[-1]["state"] == "COMPLETED"
    assert raw.json()["error"]["code"] == -32700


async def test_a_task_is_cancelled_once(place: Place) -> None:
    async with place.working(Desk):
        with place.serving() as server:
            async with server.client() as client:
                task = await sent(client, message("m1", {}, skill="desk.wait"), at_once=True)
                cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
                with pytest.raises(TaskNotCancelableError):
                    await client.cancel_task(CancelTaskRequest(id=task.id))
                failed = await sent(client, message("m2", "fail", skill="desk.upper"))
                with pytest.raises(TaskNotFoundError):
                    await client.get_task(GetTaskRequest(id=f"desk.{'0' * 8}-0000-0000-0000-{'0' * 12}"))
    assert state(cancelled) == "CANCELED"
    assert state(failed) == "FAILED"
    assert "told to fail" in failed.status.message.parts[0].text
    assert "Traceback" not in str(failed)


async def test_a_killed_server_loses_no_event_of_a_stream_and_the_next_one_doubles_none(place: Place) -> None:
    async with place.working(Tour) as log, Client(log) as runs:
        first: list[dict[str, Any]] = []
        with place.serving() as server:
            async with server.client(streaming=True) as client:
                request = message("m1", "north", skill="tour.walk")

                async def read() -> None:
                    async for response in client.send_message(request):
                        first.append(seen(response))

                reading = asyncio.create_task(read())
                await until_seen(first, state="WORKING")
                task_id = f"tour.{(await runs.list_runs())[0].run_id}"
                run = await runs.get_run(task_id.partition(".")[2])
                await run.signal("first")
                await until_seen(first, node="first")
                server.process.signal(signal.SIGKILL)
                with pytest.raises(A2AClientError):
                    await reading
        await run.signal("second")
        await eventually(lambda: _has_done(run, "second"))
        with place.serving() as server:
            async with server.client(streaming=True) as client:
                got = await client.get_task(GetTaskRequest(id=task_id))
                assert state(got) == "WORKING"
                await run.signal("third")
                last = first[-1]["cursor"]
                request = SubscribeToTaskRequest(id=task_id)
                rest = [seen(one) async for one in client.subscribe(request, context=after(last))]
                all_over = [
                    seen(one) async for one in client.subscribe(request, context=after(first[1]["cursor"]))
                ]
                with pytest.raises(UnsupportedOperationError, match="has ended"):
                    [_ async for _ in client.subscribe(request)]
                with pytest.raises(InvalidParamsError, match="no cursor"):
                    [_ async for _ in client.subscribe(request, context=after("99999.0"))]
    assert rest[0] == {**first[-1], "kind": "task", "node": "first"}
    assert [event.get("node") for event in rest[1:]] == ["second", "third", None, None]
    assert rest[-1]["state"] == "COMPLETED"
    # Whoever reads all at once sees the same.
    assert first[2:] + rest[1:] == all_over[1:]


async def _has_done(run: Any, node: str) -> bool:
    events = [event async for event in run.events(follow=False)]
    return any(event.payload.get("node") == node and "completed" in event.event_type for event in events)


async def test_tasks_are_listed_by_context_state_and_page(place: Place) -> None:
    async with place.working(Desk):
        with place.serving() as server:
            async with server.client() as client:
                for number in range(3):
                    request = message(f"m{number}", f"text {number}", skill="desk.upper", context_id="talk")
                    await sent(client, request)
                waiting = await sent(client, message("m9", {"amount": 7}, skill="desk.refund"))
                pages = []
                token = ""
                while True:
                    listed = await client.list_tasks(
                        ListTasksRequest(context_id="talk", page_size=2, page_token=token)
                    )
                    pages.append([task.id for task in listed.tasks])
                    token = listed.next_page_token
                    if not token:
                        break
                open_ones = await client.list_tasks(
                    ListTasksRequest(status=TaskState.TASK_STATE_INPUT_REQUIRED)
                )
                full = await client.list_tasks(ListTasksRequest(context_id="talk", include_artifacts=True))
    assert [len(page) for page in pages] == [2, 1]
    assert len({task for page in pages for task in page}) == 3
    assert [task.id for task in open_ones.tasks] == [waiting.id]
    assert {result(task) for task in full.tasks} == {"TEXT 0", "TEXT 1", "TEXT 2"}
    assert (listed.total_size, listed.page_size) == (3, 1)  # of this page, as the compatibility kit has it
