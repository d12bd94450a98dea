"""Names in a journal: nothing that they name is imported, and only what code declares is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import KernelError, RemoteError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.kernel import current_step, error_classes, kernel_compensation
from noesium_stream.kernel.callable_reference import find
from noesium_stream.kernel.error_classes import declare_errors, error_of, recorded_name
from noesium_stream.log import open_log
from noesium_stream.log.prepare import Prepared
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.support.stores import inject

UNDONE: list[str] = []


class State(TypedDict, total=False):
    command: str


@kernel_compensation()
def give_back(result: Any, command: str) -> None:
    UNDONE.append(command)


def undeclared(result: Any, command: str) -> None:
    UNDONE.append(command)


def harmless(command: str) -> None: ...


async def books(state: State) -> None:
    await current_step().effect("book", harmless, state["command"], compensate=give_back)
    await current_step().interrupt("go on?")


def agent() -> Any:
    graph = StateGraph(State)
    graph.add_node("books", books)
    graph.add_edge(START, "books")
    graph.add_edge("books", END)
    return agent_from_graph(graph)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        f"{__name__}:undeclared",
        "antigravity:geohash",
        ".execute",
        f"{__name__}:State",
        ":",
        "os:",
    ],
)
async def test_a_forged_compensation_waits_for_a_person_and_is_not_called(tmp_path: Path, name: str) -> None:
    """The journal of an honest run, in which the name of what undoes its effect was exchanged."""
    UNDONE.clear()
    proof = tmp_path / "proof"
    honest, forged = await open_log("memory://?partitions=1"), await open_log("memory://?partitions=1")
    async with Client(honest) as client, Worker(honest, [agent()], home=tmp_path / "a"):
        run = await client.start("sample", {"command": f"touch {proof}"})
        await eventually(run.approvals)
    topology, codec = forged.topology, EnvelopeCodec()
    for topic in (topology.inbox("sample"), topology.journal("sample")):
        await forged.ensure_topics([topology.spec(topic)])
        for record in await stored(honest, topic):
            event = record.envelope
            if event.event_type == "effect.requested":
                event = event.replace(payload={**event.payload, "compensation": name})
            await inject(
                forged, Prepared(topic, 0, record.key, "", tuple(record.headers), codec.encode(event))
            )
    async with Client(forged) as client, Worker(forged, [agent()], home=tmp_path / "b"):
        attacked = await client.get_run(run.id)
        await attacked.cancel()
        await eventually(attacked.unresolved_effects)
        events = [event async for event in attacked.events(follow=False)]
        [failed] = [event for event in events if event.event_type == "effect.failed"]
        assert "declares" in failed.payload["message"]
        healthy = await client.start("sample", {"command": "x"})
        await eventually(healthy.approvals)
        await healthy.approve(value="yes")
        await healthy.result(timeout=PATIENCE_S)
    assert (UNDONE, proof.exists()) == ([], False)
    await honest.close()
    await forged.close()


@pytest.mark.parametrize("name", ["os:system", "os:path.join", "builtins:exec", "noesium_stream:Client"])
def test_nothing_undeclared_is_found(name: str) -> None:
    with pytest.raises(KernelError, match="declares"):
        find(name, object(), ())


def test_a_name_is_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "imported_by_name.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KernelError, match="declares"):
        find("imported_by_name:undo", object(), ())
    error = error_of("e", "Error", "no", "1", "imported_by_name:Error")
    assert isinstance(error, RemoteError)


class OurError(ValueError):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_errors_are_rebuilt_from_classes_that_the_code_can_name() -> None:
    declare_errors([books])
    for kind, message in ((OurError, "1 and 2"), (ConnectionResetError, "gone"), (KernelError, "no")):
        rebuilt = error_of("e", kind.__name__, message, "1", recorded_name(kind))
        assert (type(rebuilt), str(rebuilt)) == (kind, message)


@pytest.mark.parametrize(
    "error_class",
    ["os:system", "builtins:SystemExit", "noesium_stream:Client", "", None],
)
def test_every_other_error_is_a_remote_error(error_class: str | None) -> None:
    error = error_of("book", "Odd", "no room", "id-1", error_class)
    assert isinstance(error, RemoteError)
    assert str(error) == "The effect book failed: Odd: no room"
    assert (error.recorded, error.effect_id, error.error_class) == (("Odd", "no room"), "id-1", error_class)


def test_an_error_is_recorded_as_the_nearest_class_that_the_code_can_name() -> None:
    declare_errors([books])

    class Local(OurError): ...

    assert recorded_name(Local) == f"{__name__}:OurError"

    class Foreign(Exception): ...

    assert isinstance(error_of("e", "Foreign", "no", "1", recorded_name(Foreign)), RemoteError)


def test_each_module_is_looked_through_once_for_the_errors_that_a_node_can_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Any] = []
    look = error_classes._exceptions

    def count(module: Any) -> Any:
        looked.append(module)
        return look(module)

    monkeypatch.setattr(error_classes, "_exceptions", count)
    declare_errors([harmless])
    assert sys.modules[__name__] in looked
    assert len(looked) == len(set(looked)), "several names here come from one module"
