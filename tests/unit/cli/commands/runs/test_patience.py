"""What is said when nobody answers, and when nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.cli.agents import AgentChoice
from noesium_stream.cli.commands.runs.patience import PATIENCE_S, Patience, WorkerCommands
from noesium_stream.clock import VirtualClock
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import (
    CapabilityCompleted,
    CapabilityExpired,
    CapabilityInvoked,
    CapabilityRefused,
    CapabilityRequested,
    CapabilityUnresolved,
    GraphRef,
    ReplyTo,
    RunStarted,
    TaskCompleted,
    TaskRequested,
)
from tests.support import sample_agents

LOG = "kafka://localhost:9092"
ASKER = "tests.support.sample_agents:Asker"
OWN = f"noesium worker {ASKER} --log {LOG}"
COMPANION = f"noesium worker tests.support.sample_agents:Echo --log {LOG}"


class HeldClock(VirtualClock):
    """Nobody wakes before the test says that time has passed."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[asyncio.Event] = []
        self.asked: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        event = asyncio.Event()
        self._sleepers.append(event)
        await event.wait()

    async def pass_time(self) -> None:
        """Let all that has begun reach its sleep, wake it, and let it run to its end."""
        for event in [*await self._settled()]:
            event.set()
        await self._settled()

    async def _settled(self) -> list[asyncio.Event]:
        for _ in range(10):
            await asyncio.sleep(0)
        return self._sleepers


class Watched:
    """A `Patience` on run `r`, the events that it sees, and what it says."""

    def __init__(self, here: frozenset[str] = frozenset(), **options: Any) -> None:
        self.clock = HeldClock()
        self.said: list[str] = []
        choice = AgentChoice({ASKER: sample_agents.Asker}, options)
        self.patience = Patience(
            "r", WorkerCommands(choice, ASKER, LOG), here=here, clock=self.clock, say=self.said.append
        )

    def see(self, event: DomainEvent) -> None:
        self.patience.see(self._envelope(event))

    def _envelope(self, event: DomainEvent) -> EventEnvelope:
        return event.to_envelope(
            AgentRef("asker", "asker"), TraceContext("ab" * 16, "cd" * 8), partition_key="r", clock=self.clock
        )

    def start(self) -> None:
        graph = GraphRef(graph_id="g", version="1.0.0", fingerprint="00")
        self.see(RunStarted(run_id="r", agent_type="asker", agent_version="1.0.0", graph=graph))

    def request(self, call_id: str, capability: str = "text.echo") -> None:
        self.see(
            CapabilityRequested(run_id="r", call_id=call_id, capability_id=capability, version_range="^1")
        )

    def call(self, call_id: str, target: str = "echo", capability: str = "text.echo") -> None:
        self.see(
            CapabilityInvoked(
                run_id=call_id,
                capability_id=capability,
                version="1.0.0",
                caller_agent_id="asker",
                caller_run_id="r",
                target_agent_id=target,
                target_agent_type=target,
                registry_offset=0,
                input={},
                reply_to=ReplyTo(agent_type="asker", run_id="r", call_id=call_id),
            )
        )

    def answer(self, call_id: str) -> None:
        self.see(
            CapabilityCompleted(
                run_id=call_id,
                call_id=call_id,
                caller_run_id="r",
                capability_id="text.echo",
                provider_agent_id="echo",
                output={},
            )
        )


async def test_a_run_that_nobody_takes_up_is_told_with_the_commands_of_all_who_are_needed() -> None:
    watched = Watched()
    async with watched.patience:
        await watched.clock.pass_time()
    (said,) = watched.said
    first, *commands = said.splitlines()
    assert first.startswith("Nobody has taken up the run for 15 s.")
    assert commands == [f"  {OWN}", f"  {COMPANION}"]
    assert watched.clock.asked == [PATIENCE_S]


async def test_a_run_that_was_taken_up_is_waited_for_in_silence() -> None:
    watched = Watched()
    async with watched.patience:
        watched.start()
        await watched.clock.pass_time()
    assert watched.said == []


async def test_a_call_without_an_answer_is_told_with_who_is_waited_for_and_once_per_capability() -> None:
    watched = Watched()
    async with watched.patience:
        watched.start()
        watched.call("c1")
        watched.call("c2")
        await watched.clock.pass_time()
        watched.call("c3")
        await watched.clock.pass_time()
    (said,) = watched.said
    assert said.startswith("echo has not answered text.echo for 15 s.")
    assert said.splitlines()[1:] == [f"  {COMPANION}"]


async def test_a_task_that_nobody_does_is_told_by_its_capability_until_it_is_done() -> None:
    watched = Watched()
    asked = TaskRequested(
        task_id="t",
        run_id="t",
        capability_id="image.resize",
        caller_run_id="r",
        reply_to=ReplyTo(agent_type="asker", run_id="r", call_id="t"),
    )
    async with watched.patience:
        watched.start()
        watched.see(asked)
        watched.see(TaskCompleted(task_id="t", call_id="t", caller_run_id="r"))
        await watched.clock.pass_time()
        assert watched.said == []
        watched.see(asked)
        await watched.clock.pass_time()
    (said,) = watched.said
    assert said.startswith("Nobody has done a task of image.resize for 15 s.")


async def test_a_call_that_was_answered_is_not_told() -> None:
    watched = Watched()
    async with watched.patience:
        watched.start()
        watched.call("c1")
        watched.answer("c1")
        await watched.clock.pass_time()
    assert watched.said == []


async def test_of_an_agent_that_is_no_companion_the_type_alone_is_known() -> None:
    watched = Watched()
    async with watched.patience:
        watched.start()
        watched.call("c1", target="stranger", capability="far.away")
        await watched.clock.pass_time()
    (said,) = watched.said
    assert said.startswith("stranger has not answered far.away for 15 s.")
    assert said.endswith("if no worker of stranger runs, start one.")


async def test_an_agent_that_this_process_runs_need_not_be_started() -> None:
    watched = Watched(here=frozenset({"asker", "echo"}))
    async with watched.patience:
        watched.start()
        watched.call("c1")
        await watched.clock.pass_time()
    assert watched.said == []


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(sample_agents.Asker, "companions", ("agents.not_installed_here",))
    return "agents.not_installed_here"


async def test_a_companion_that_is_not_installed_here_is_named_all_the_same(absent: str) -> None:
    watched = Watched()
    async with watched.patience:
        await watched.clock.pass_time()
        watched.start()
        watched.call("c1")
        await watched.clock.pass_time()
    about_run, about_call = watched.said
    assert about_run.splitlines()[-1] == f"  noesium worker {absent} --log {LOG}"
    assert about_call.endswith("if no worker of echo runs, start one.")


def test_the_options_of_this_command_line_are_those_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    class Options(sample_agents.Asker.Options):  # type: ignore[name-defined, misc]
        docs: str | None = None
        loud: bool = False
        names: list[str] = []  # noqa: RUF012 - a field of a model

    class Teller(BaseGraphicAgent):
        agent_type = "teller"

        def get_state_class(self) -> type[Any]:
            raise NotImplementedError

        def _build_graph(self) -> Any:
            raise NotImplementedError

    monkeypatch.setattr(Teller, "Options", Options)
    given = {"docs": "my docs", "loud": False, "names": ["Ann", "Bob"], "other": "x"}
    choice = AgentChoice({"agents.teller": Teller}, given)
    assert WorkerCommands(choice, "agents.teller", LOG).of("teller") == (
        f"noesium worker agents.teller --docs 'my docs' --no-loud --names Ann --names Bob --log {LOG}"
    )


async def test_a_capability_that_nobody_offers_is_named_once() -> None:
    watched = Watched()
    async with watched.patience:
        watched.start()
        for call_id in ("c1", "c2"):
            watched.request(call_id, "text.ecco")
        await watched.clock.pass_time()
    assert watched.said == [
        f"Nobody has offered text.ecco ^1 for {PATIENCE_S:.0f} s. The run waits on the log; check the name, "
        "or start a worker of an agent that offers it."
    ]


@pytest.mark.parametrize(
    "end",
    [
        CapabilityUnresolved(run_id="r", call_id="c1", capability_id="text.echo"),
        CapabilityRefused(
            run_id="r", call_id="c1", capability_id="text.echo", error_type="CallLimitError", error="no"
        ),
        CapabilityExpired(run_id="r", call_id="c1", capability_id="text.echo", deadline_ms=1),
    ],
)
async def test_nothing_is_said_of_a_request_that_has_ended(end: DomainEvent) -> None:
    watched = Watched()
    async with watched.patience:
        watched.start()
        watched.request("c1")
        watched.see(end)
        await watched.clock.pass_time()
    assert watched.said == []


async def test_a_request_that_has_found_its_provider_is_a_call() -> None:
    watched = Watched(here=frozenset({"echo"}))
    async with watched.patience:
        watched.start()
        watched.request("c1")
        watched.call("c1")
        await watched.clock.pass_time()
    assert watched.said == []
