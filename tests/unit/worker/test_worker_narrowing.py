"""Limits of a run's tools hold in the runs that it calls, and so do the labels of what it hands on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from noesium_stream import BaseGraphicAgent, capability
from noesium_stream.client import Client, Run
from noesium_stream.errors import RunFailedError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.event.trust.policy import Policy
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.tool import Mode, tool
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S

made: list[str] = []


@tool(side_effects=SideEffectClass.PURE, permissions=("fs:read:{path}",), labels=("web",))
async def read(path: str) -> str:
    """Read a file that comes from the web."""
    made.append(f"read {path}")
    return f"text of {path}"


@tool(side_effects=SideEffectClass.IDEMPOTENT, permissions=("fs:write:{path}",))
async def write(path: str, text: str = "") -> str:
    """Write a file."""
    made.append(f"write {path}")
    return f"wrote {path}"


@tool(side_effects=SideEffectClass.EXTERNAL, permissions=("mail:send:{to}",))
async def send(to: str, text: str) -> str:
    """Send a letter."""
    made.append(f"send {to}")
    return f"sent to {to}"


class Clerk(BaseGraphicAgent):
    """May do all that its tools need, in mode auto."""

    agent_type = "clerk"
    tools: ClassVar[tuple[Any, ...]] = (read, write, send)
    permissions = ("fs:read", "fs:write", "mail:send")
    mode = Mode.AUTO

    @capability("clerk.write")
    async def write_it(self, path: str) -> str:
        """Write a file."""
        return str(await current_step().tool("write", path=path))

    @capability("clerk.read")
    async def read_it(self, path: str) -> str:
        """Read a file."""
        return str(await current_step().tool("read", path=path))

    @capability("clerk.send")
    async def send_it(self, to: str, text: str) -> str:
        """Send a letter."""
        return str(await current_step().tool("send", to=to, text=text))


class Chief(BaseGraphicAgent):
    """Has the clerk do it, within limits that its caller gives."""

    agent_type = "chief"
    tools: ClassVar[tuple[Any, ...]] = (read, send)
    permissions = ("fs:read", "fs:write", "mail:send")
    mode = Mode.AUTO

    @capability("chief.write")
    async def have_written(self, path: str, limits: dict[str, Any]) -> str:
        """Have a file written."""
        return str(await current_step().invoke("clerk.write", {"path": path}, **limits))

    @capability("chief.forward")
    async def forward(self, path: str) -> str:
        """Have what was read sent."""
        step = current_step()
        text = await step.tool("read", path=path)
        return str(await step.invoke("clerk.send", {"to": "ada", "text": text}))

    @capability("chief.pass")
    async def pass_on(self, path: str) -> str:
        """Send what somebody else has read."""
        step = current_step()
        text = await step.invoke("clerk.read", {"path": path})
        return str(await step.tool("send", to="ada", text=text))


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    made.clear()
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


def worker(log: EventLog, home: Path, policy: Policy | None = None) -> Worker:
    return Worker(log, [Clerk, Chief], home=home, policy=policy)


async def refused(run: Run, reason: str) -> None:
    with pytest.raises(RunFailedError, match=reason):
        await run.result(timeout=PATIENCE_S)


LESS: dict[str, tuple[dict[str, Any], str]] = {
    "other permissions": ({"permissions": ["fs:read"]}, "its run is limited to "),
    "another folder": ({"permissions": ["fs:write:reports/**"]}, "its run is limited to "),
    "mode ask": ({"mode": "ask"}, "mode"),
    "mode plan": ({"mode": "plan"}, "mode"),
}


@pytest.mark.parametrize("how", LESS)
async def test_a_run_does_no_more_than_its_starter_allows(log: EventLog, tmp_path: Path, how: str) -> None:
    limits, reason = LESS[how]
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start("clerk", {"path": "keys/a"}, capability="clerk.write", **limits)
        await refused(run, reason)
        types = [event.event_type async for event in run.events(follow=False)]
    assert ("tool.denied" in types, "tool.invoked" in types, made) == (True, False, [])


@pytest.mark.parametrize("how", LESS)
@pytest.mark.parametrize("who", ["starter", "caller"])
async def test_a_delegate_does_no_more_than_its_callers_allow(
    log: EventLog, tmp_path: Path, how: str, who: str
) -> None:
    limits, reason = LESS[how]
    given = {"path": "keys/a", "limits": limits if who == "caller" else {}}
    of_run = limits if who == "starter" else {}
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start("chief", given, capability="chief.write", **of_run)
        await refused(run, reason)
    assert made == []


async def test_a_delegate_does_what_all_of_its_callers_allow(log: EventLog, tmp_path: Path) -> None:
    limits = {"permissions": ["fs:write:reports/**", "fs:write:keys/**"], "mode": "act"}
    given = {"path": "reports/a", "limits": {"permissions": ["fs:write:reports/**"]}}
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start("chief", given, capability="chief.write", **limits)
        assert await run.result(timeout=PATIENCE_S) == "wrote reports/a"
    assert made == ["write reports/a"]


@pytest.mark.parametrize("limits", [{"permissions": ["fs:write"]}, {"mode": "auto"}])
async def test_a_call_cannot_widen_what_its_run_may_do(
    log: EventLog, tmp_path: Path, limits: dict[str, Any]
) -> None:
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start(
            "chief",
            {"path": "keys/a", "limits": limits},
            capability="chief.write",
            permissions=["fs:read"],
            mode="ask",
        )
        with pytest.raises(RunFailedError):
            await run.result(timeout=PATIENCE_S)
    assert made == []


NO_WEB = Policy.model_validate(
    {
        "allow": [{"who": ["*"], "may": ["*"]}],
        "agents": {
            name: {
                "grant": ["fs:read", "fs:write", "mail:send"],
                "mode": "auto",
                "never": [{"tool": "send", "argument_from": "web"}],
            }
            for name in ("clerk", "chief")
        },
    }
)


@pytest.mark.parametrize("which", ["chief.forward", "chief.pass"])
async def test_what_comes_from_the_web_is_labelled_in_the_other_agent(
    log: EventLog, tmp_path: Path, which: str
) -> None:
    """Handed on with a call, and come back with its answer."""
    async with worker(log, tmp_path, NO_WEB), Client(log) as client:
        run = await client.start("chief", {"path": "a"}, capability=which)
        await refused(run, "A rule of the policy refuses send")
    assert made == ["read a"]


async def test_what_a_person_says_has_no_label(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path, NO_WEB), Client(log) as client:
        run = await client.start("clerk", {"to": "ada", "text": "hello"}, capability="clerk.send")
        assert await run.result(timeout=PATIENCE_S) == "sent to ada"
