"""What befalls brokers, workers and the lines between them, by name; each draws from its seed alone.

A fault goes on until its time is up and heals what it has done. Brokers are struck when a worker sends a
request of a transaction: before the broker has it, or a few milliseconds later.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.chaos.cluster import Cluster, Node
from tests.chaos.cluster_crew import Crew, Hand
from tests.chaos.link import Link

PRODUCE: Final = 0
ADD_PARTITIONS: Final = 24
END_TXN: Final = 26
SESSION_S: Final = 6.0
STORM_EVERY_S: Final = 2.0


@dataclass
class Scene:
    """What a fault may strike.

    Attributes:
        until_s: when its time is up, by `time.monotonic()`.
        links: one for each place of a worker.
        did: what was done, and how often.
    """

    cluster: Cluster
    crew: Crew
    links: Sequence[Link]
    chance: Random
    until_s: float
    say: Callable[[str], None]
    did: Counter[str] = field(default_factory=Counter)

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.until_s

    async def wait(self, at_least_s: float, at_most_s: float) -> None:
        """A pause that is drawn; over when the time is up."""
        await asyncio.sleep(max(0.0, min(self.chance.uniform(at_least_s, at_most_s), self.left_s)))

    @property
    def left_s(self) -> float:
        """How much time there is."""
        return self.until_s - time.monotonic()

    def tell(self, what: str, how: str) -> None:
        """Count it, and say it."""
        self.did[what] += 1
        self.say(f"{what}: {how}")


Fault = Callable[[Scene], Awaitable[None]]


async def in_mid_transaction(scene: Scene, strike: Callable[[], None]) -> None:
    """Call `strike` when a worker sends the next request of a drawn kind; after five seconds in any case."""
    key = scene.chance.choice((PRODUCE, PRODUCE, ADD_PARTITIONS, END_TXN, END_TXN, END_TXN))
    late_s = scene.chance.choice((0.0, 0.0, 0.001, 0.003, 0.01))
    struck = asyncio.Event()

    def now() -> None:
        if not struck.is_set():
            struck.set()
            strike()

    def seen() -> None:
        if late_s:
            asyncio.get_running_loop().call_later(late_s, now)
        else:
            now()

    for link in scene.links:
        link.strike_at(key, seen)
    try:
        async with asyncio.timeout(5.0):
            await struck.wait()
    except TimeoutError:
        now()
    finally:
        for link in scene.links:
            link.up.sees = None
    scene.say(f"struck at request {key}, {late_s * 1000:.0f} ms later")


async def broker_kill(scene: Scene) -> None:
    """The broker is killed in mid transaction, and started again after a while."""
    [node] = scene.cluster.nodes
    while scene.goes_on:
        await in_mid_transaction(scene, node.kill)
        away_s = scene.chance.choice((0.0, 0.0, 3.0, 8.0))
        scene.tell("killed", f"broker {node.node_id}, for {away_s:.0f} s")
        await asyncio.sleep(away_s)
        await back(scene, node)
        await scene.wait(2.0, 12.0)


async def broker_pause(scene: Scene) -> None:
    """The broker stands still in mid transaction, and goes on after a while."""
    [node] = scene.cluster.nodes
    while scene.goes_on:
        await in_mid_transaction(scene, lambda: node.signal(signal.SIGSTOP))
        still_s = scene.chance.choice((0.3, 2.0, 5.0, 9.0, 12.0, 17.0, 25.0))
        scene.tell("paused", f"broker {node.node_id}, for {still_s} s")
        await asyncio.sleep(still_s)
        node.signal(signal.SIGCONT)
        await scene.wait(2.0, 10.0)


async def rolling_restart(scene: Scene) -> None:
    """Brokers are restarted one after the other, each when all partitions have all copies again."""
    while scene.goes_on:
        nodes = list(scene.cluster.nodes)
        scene.chance.shuffle(nodes)
        for node in nodes:
            if scene.chance.random() < 0.25:
                scene.tell("killed", f"broker {node.node_id}")
                node.kill()
            else:
                scene.tell("restarted", f"broker {node.node_id}")
                await asyncio.to_thread(node.stop)
            await asyncio.sleep(scene.chance.choice((0.0, 0.0, 3.0)))
            await back(scene, node)
        await scene.wait(0.5, 3.0)


async def back(scene: Scene, node: Node) -> None:
    """Start a broker, and wait until it and all copies are there."""
    scene.cluster.start(node)
    took_s = await scene.cluster.whole()
    scene.say(f"broker {node.node_id} is back after {took_s:.1f} s")


async def storm(scene: Scene) -> None:
    """A worker joins or dies every two seconds."""
    crew, chance = scene.crew, scene.chance
    while scene.goes_on:
        begun = time.monotonic()
        free = crew.free
        if len(free) <= 1 or (len(free) < 5 and chance.random() < 0.5):
            crew.join()
            scene.did["joined"] += 1
        else:
            hand = chance.choice(free)
            if chance.random() < 0.5:
                hand.kill()
                scene.tell("killed", hand.name)
            else:
                hand.stop()
                scene.tell("stopped", hand.name)
        await asyncio.sleep(max(0.0, STORM_EVERY_S - (time.monotonic() - begun)))


async def zombie(scene: Scene) -> None:
    """Workers stand still, most of them for longer than their session, and go on."""
    crew, chance = scene.crew, scene.chance
    sleeping: set[asyncio.Task[None]] = set()
    while scene.goes_on:
        free = crew.free
        if len(free) > 1:
            still_s = chance.choice((2.0, SESSION_S, 8.0, 10.0, 14.0, 20.0)) + chance.random()
            hand = chance.choice(free)
            hand.pause()  # now: else it might be told to end as well, and be late for that
            scene.tell("paused", f"{hand.name} for {still_s:.1f} s")
            task = asyncio.create_task(_wake(scene, hand, still_s))
            sleeping.add(task)
            task.add_done_callback(sleeping.discard)
        if len(free) > crew.size + 1:
            chance.choice(crew.free).stop()
        await scene.wait(1.0, 5.0)
    await asyncio.gather(*sleeping)


async def _wake(scene: Scene, hand: Hand, still_s: float) -> None:
    await asyncio.sleep(min(still_s, max(SESSION_S + 2.0, scene.left_s)))
    scene.say(f"{hand.name} goes on")
    hand.go_on()


async def cut(scene: Scene) -> None:
    """Lines of workers are cut, held in one direction or both, or slow: of one, or of all."""
    chance = scene.chance
    while scene.goes_on:
        links = list(scene.links) if chance.random() < 0.25 else [chance.choice(scene.links)]
        kind = chance.choice(("cut", "cut", "snap", "hold up", "hold down", "hold both", "slow", "slow up"))
        for_s = chance.choice((0.5, 2.0, 5.0, 9.0, 15.0, 22.0)) * chance.uniform(0.6, 1.2)
        which = "all" if len(links) > 1 else str(scene.links.index(links[0]))
        scene.tell(kind, f"line {which} for {for_s:.1f} s")
        for link in links:
            _harm(link, kind, chance)
        for hand in scene.crew.hands:
            hand.easy = False  # who has no line cannot leave its group in time
        await asyncio.sleep(for_s)
        for link in links:
            # Half of the time what was held comes late, else it is lost with its connection.
            if kind.startswith("hold") and chance.random() < 0.5:
                link.snap()
            link.mend()
        await scene.wait(0.5, 8.0)


def _harm(link: Link, kind: str, chance: Random) -> None:
    if kind == "cut":
        link.cut()
    elif kind == "snap":
        link.snap()
    elif kind.startswith("hold"):
        link.up.held = kind != "hold down"
        link.down.held = kind != "hold up"
    else:
        link.up.delay_s = chance.uniform(0.05, 1.5)
        link.down.delay_s = chance.uniform(0.0, 1.5) if kind == "slow" else 0.0


FAULTS: Final[dict[str, Fault]] = {
    "broker-kill": broker_kill,
    "broker-pause": broker_pause,
    "rolling-restart": rolling_restart,
    "storm": storm,
    "zombie": zombie,
    "cut": cut,
}
"""By name."""

MINUTES: Final = {"storm": 10.0}
"""How long a fault goes on where that is not said; else one minute."""

BROKERS: Final = {"rolling-restart": 3}
"""How many there are, where it is not one."""
