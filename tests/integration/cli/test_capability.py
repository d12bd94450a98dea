"""`noesium capability` and `noesium agents`: what is offered, who is chosen, what a deploy breaks."""

from __future__ import annotations

import asyncio
import os

import pytest

from noesium_stream import (
    AgentRef,
    BaseGraphicAgent,
    Capability,
    CapabilityRegistry,
    Client,
    Worker,
    capability,
    current_step,
    open_log,
)
from noesium_stream.clock import SystemClock
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import AgentUnavailable
from tests.support.command import Folder

SHOP = '''
from noesium_stream import BaseGraphicAgent, capability

class Shop(BaseGraphicAgent):
    agent_type = "shop"

    @capability(id="shop.price", version={version!r}, tags=["money"])
    def price(self, item: str{more}) -> int:
        """The price of an item."""
        return len(item){plus}

AGENT = Shop
'''


class Shop(BaseGraphicAgent):
    agent_type = "shop"

    @capability(id="shop.price", tags=["money"])
    def price(self, item: str) -> int:
        """The price of an item."""
        return len(item)


class Buyer(BaseGraphicAgent):
    agent_type = "buyer"

    @capability
    async def buy(self, item: str) -> int:
        """Buy an item."""
        return int(await current_step().invoke("shop.price", {"item": item}, version="^1"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("capability")
    url = f"sqlite:///{path / 'log.db'}"
    made = Folder(path, NOESIUM_HOME=str(path / "home"), NOESIUM_LOG=url)
    for name, version, more, plus in (
        ("same", "1.0.0", "", ""),
        ("new", "1.1.0", "", ""),
        ("other", "1.1.0", "", " + 1"),
        ("broken", "1.1.0", ", currency: str", ""),
        ("changed", "1.0.0", ", currency: str = 'EUR'", ""),
    ):
        (path / f"{name}.py").write_text(SHOP.format(version=version, more=more, plus=plus))

    async def fill() -> None:
        log = await open_log(url)
        async with Worker(log, [Shop, Buyer], home=path / "home"), Client(log) as client:
            assert await (await client.start("buyer", {"item": "bread"})).result() == 5
        registry = CapabilityRegistry(log)
        for name, version, weight in (("stall", "1.0.0", 3), ("stall", "2.0.0", 1), ("ghost", "1.5.0", 1)):
            offered = Capability(
                id="shop.price", version=version, weight=weight, input_schema={}, output_schema={}
            )
            await registry.register(AgentRef(name, name), offered)
        await registry.deprecate(AgentRef("stall", "stall"), "shop.price", "2.0.0", "too dear")
        gone = AgentUnavailable(agent_id="ghost", agent_type="ghost", reason="3 heartbeats missed")
        await log.append([root_event(gone, AgentRef("watcher", "watcher"), SystemClock())])
        await log.close()

    asyncio.run(fill())
    return made


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_list_has_what_is_on_offer(folder: Folder) -> None:
    assert lines(folder.ok("capability", "list")) == [
        "capability version agent priority weight status",
        "buyer.buy 1.0.0 buyer 0 1 live",
        "shop.price 1.0.0 shop 0 1 live",
        "shop.price 1.0.0 stall 0 3 live",
        "shop.price 1.5.0 ghost 0 1 unavailable",
    ]
    assert "shop.price 2.0.0 stall 0 1 deprecated" in lines(folder.ok("capability", "list", "--all"))
    [only] = folder.json("capability", "list", "--tag", "money", "--json")
    assert (only["agent_id"], only["status"], only["capability"]["tags"]) == ("shop", "live", ["money"])
    assert len(folder.json("capability", "list", "--agent", "stall", "--all", "--json")) == 2
    nothing = folder.run("capability", "list", "--tag", "no")
    assert nothing.stderr.startswith("There are no such capabilities on sqlite:")


def test_what_is_registered_is_shown_with_its_schemas(folder: Folder) -> None:
    shown = folder.ok("capability", "show", "shop.price")
    assert "1.0.0 of shop (agent type shop), live" in shown
    assert "  The price of an item." in shown
    assert '  input {"' in shown
    assert "2.0.0 of stall (agent type stall), deprecated: too dear" in shown
    assert len(folder.json("capability", "show", "shop.price", "--json")) == 4
    unknown = folder.run("capability", "show", "shop.prize")
    assert unknown.returncode == 1
    assert "Nobody has registered shop.prize" in unknown.stderr
    assert "There are: buyer.buy, shop.price." in unknown.stderr


def test_who_is_chosen_is_said_and_why(folder: Folder) -> None:
    resolve = ("capability", "resolve", "shop.price")
    assert folder.ok(*resolve) == "stall 1.0.0\n"
    assert folder.ok(*resolve, "--without", "stall") == "shop 1.0.0\n"
    assert lines(folder.ok(*resolve, "--version", "^1", "--explain")) == [
        "shop.price ^1, at position 11 of the registry",
        "stall 1.0.0: taken: weight 3, registered as number 2",
        "shop 1.0.0: its weight 1 is below 3",
        "stall 2.0.0: deprecated: too dear",
        "ghost 1.5.0: its agent is unavailable: 3 heartbeats missed",
    ]
    found = folder.json(*resolve, "--run", "some-run", "--json")
    assert found["chosen"]["agent_id"] in ("shop", "stall")
    assert found == folder.json(*resolve, "--run", "some-run", "--json")
    assert found["run_id"] == "some-run"


def test_a_choice_of_the_past_is_made_again(folder: Folder) -> None:
    early = folder.json("capability", "resolve", "shop.price", "--at", "1", "--json")
    assert (early["chosen"]["agent_id"], early["position"]) == ("shop", 1)
    none = folder.run("capability", "resolve", "shop.price", "--at", "0", "--explain")
    assert none.returncode == 1
    assert lines(none.stdout)[-1] == "nobody has registered it"


def test_nobody_is_an_error_that_says_what_is_on_offer(folder: Folder) -> None:
    none = folder.run("capability", "resolve", "shop.price", "--version", "^2")
    assert none.returncode == 1
    assert "No agent offers shop.price ^2; on offer: buyer.buy 1.0.0, shop.price 1.0.0" in none.stderr
    assert "deprecated: too dear" in none.stderr
    wrong = folder.run("capability", "resolve", "shop.price", "--version", "newest")
    assert "'newest' is not a version range" in wrong.stderr
    assert "Traceback" not in none.stderr + wrong.stderr


def test_a_deploy_is_checked_before_it(folder: Folder) -> None:
    check = ("capability", "check")
    assert folder.ok(*check, "same") == "shop.price 1.0.0  is registered already\n"
    assert folder.ok(*check, "new") == ("shop.price 1.1.0  can be registered: callers of 1.0.0 can call it\n")
    broken = folder.run(*check, "broken")
    assert broken.returncode == 1
    assert "breaks callers of 1.0.0 of shop: input.currency is required now." in broken.stdout
    changed = folder.run(*check, "changed", "--json")
    assert changed.returncode == 1
    assert '"is_refused": true' in changed.stdout


def test_recorded_calls_are_replayed_before_a_deploy(folder: Folder) -> None:
    same = lines(folder.ok("capability", "check", "new", "--replay", "5"))
    assert len(same) == 2
    assert same[1].endswith("is as recorded, 1 steps")
    other = folder.run("capability", "check", "other", "--replay", "5")
    assert other.returncode == 1
    assert "would be another one" in other.stdout


def test_agents_are_listed_with_what_they_offer(folder: Folder) -> None:
    found = {one["agent_type"]: one for one in folder.json("agents", "--json")}
    assert set(found) == {"buyer", "ghost", "shop", "stall"}
    assert found["shop"]["capabilities"] == ["shop.price 1.0.0"]
    assert found["ghost"]["status"] == "unavailable"
    assert found["stall"]["status"] == "stopped"
    assert (found["shop"]["status"], found["shop"]["instances"]) == ("stopped", []), "its worker has left"
    shown = lines(folder.ok("agents"))
    assert shown[0] == "agent status instances open runs versions"
    assert "unavailable: 3 heartbeats missed" in shown
    assert "offers buyer.buy 1.0.0" in shown
    assert [one["agent_type"] for one in folder.json("agents", "--agent", "shop", "--json")] == ["shop"]


async def test_an_agent_at_work_is_listed_with_its_processes(folder: Folder) -> None:
    log = await open_log(folder.env["NOESIUM_LOG"])
    async with Worker(log, [Shop], home=folder.path / "home") as worker, Client(log) as client:
        assert worker is not None
        await (await client.start("shop", {"item": "oil"})).result()
        listed = await asyncio.to_thread(folder.json, "agents", "--agent", "shop", "--json")
    await log.close()
    assert [one["status"] for one in listed] == ["ready"]
    [instance] = listed[0]["instances"]
    assert instance["process"].endswith(f"/{os.getpid()}")
    assert instance["versions"][0].startswith("shop 1.0.0 (")
