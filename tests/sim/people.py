"""Who is there beside the workers: clients who ask, people who answer, operators who mend and enlarge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from noesium_stream.client import Client, Run
from noesium_stream.client.operate.dead_letters import DeadLetter, LetterDecider, dead_letters
from noesium_stream.errors import CommitUnknownError, ConfigError, DeadLetterError
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import RunRequested
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.generations import generations
from noesium_stream.log.port import Position
from noesium_stream.log.prepare import prepare_append
from noesium_stream.log.topics import partition_of
from tests.sim.cast import CALLER, CARRIER, GO, Either, answer_of
from tests.sim.clock import START_MS
from tests.sim.log import CODEC
from tests.sim.plan import Command, Growth, Spoil
from tests.sim.tool_cast import EDITED, TOOLERS
from tests.support.invariants import Asked
from tests.support.watching import AWAY, decision, patiently, unless_closed

if TYPE_CHECKING:
    from tests.sim.play import Stage

FAULTS: Final = ("refused", "full", "request lost", "answer lost", "late", "slow")
"""What may befall them; they do not die."""

PAUSE_S: Final = 1.0


class People:
    """All of them in one world.

    Attributes:
        asked: the commands that were accepted, by run.
        spoiled: the events that were spoiled on their way.
        busy: how many of them have something left to do.
    """

    def __init__(self, stage: Stage) -> None:
        self.asked: dict[str, Asked] = {}
        self.spoiled: set[str] = set()
        self.busy = 0
        self._stage = stage
        self._plan = stage.plan
        self._grown: dict[Growth, int] = {}
        self._letters: set[Position] = set()
        self._spoiling = len(stage.plan.spoils)

    def begin(self) -> list[asyncio.Task[Any]]:
        """Begin; what went wrong among them is in the tasks."""
        plan = self._plan
        client = self._client("client")
        tasks = [self._at_work("client", self._ask(client, command)) for command in plan.commands]
        tasks += [self._spawn("people", self._help(self._client("people", "anna")))]
        if plan.growths:
            tasks += [self._at_work("operator", self._grow_all(self._client("operator", "olga")))]
        if plan.spoils:
            tasks += [self._at_work("spoiler", self._spoil(spoil)) for spoil in plan.spoils]
            tasks += [self._at_work(name, self._mend(name)) for name in ("otto", "oskar")]
        return tasks

    def _log(self, name: str) -> EmbeddedLog:
        stage = self._stage
        odds = {kind: odds for kind, odds in self._plan.odds.items() if kind in FAULTS}
        return stage.log(stage.link(stage.lane(name), odds))

    def _client(self, name: str, agent_id: str = "client") -> Client:
        return Client(self._log(name), agent_id=agent_id, clock=self._stage.clock(name))

    def _spawn(self, name: str, work: Any) -> asyncio.Task[Any]:
        return self._stage.lane(name).spawn(work, name)

    def _at_work(self, name: str, work: Awaitable[None]) -> asyncio.Task[Any]:
        async def at_work() -> None:
            try:
                await work
            finally:
                self.busy -= 1

        self.busy += 1
        return self._spawn(name, at_work())

    # -- clients ---------------------------------------------------------------------------------------

    async def _ask(self, client: Client, command: Command) -> None:
        stage = self._stage
        await asyncio.sleep(command.at_s)
        run = None
        due = None
        if command.deadline_s is not None:
            due = datetime.fromtimestamp(START_MS / 1000 + stage.loop.time() + command.deadline_s, UTC)
        for _ in range(command.copies if command.key is not None else 1):
            run = await self._start(client, command, due) or run
            await asyncio.sleep(stage.chance.choice((0.0, 0.1, 20.0)) * stage.chance.random())
        if run is None:
            return
        later = [self._later(after, partial(run.signal, GO, GO)) for after in command.signals]
        if command.cancel_after_s is not None:
            later.append(self._later(command.cancel_after_s, partial(self._cancel, run)))
        if command.cancel_at_end:
            later.append(self._cancel_at_end(run, len(command.orders)))
        await asyncio.gather(*later)

    async def _start(self, client: Client, command: Command, due: datetime | None) -> Run | None:
        """Until it is accepted; None: it was not, or nobody can know."""
        while True:
            try:
                run = await client.start(
                    command.agent_type,
                    {"orders": command.orders},
                    idempotency_key=command.key,
                    fairness_key=command.fair,
                    deadline=due,
                    version=command.version,
                )
            except ConfigError:
                return None  # its deadline has passed; earlier sendings of it may be there
            except CommitUnknownError:
                if command.key is None:
                    return None
            except AWAY:
                pass
            else:
                self._stage.say(f"run {run.id} was asked for: {command.orders}")
                self._accepted(run.id, command.agent_type, command.orders)
                return run
            await asyncio.sleep(PAUSE_S)

    def _accepted(self, run_id: str, agent_type: str, orders: list[Any]) -> None:
        gives = {"got": [answer_of(order, asked=Either(True, False)) for order in orders]}
        self.asked[run_id] = Asked(run_id, agent_type, [gives])

    async def _later(self, after_s: float, send: Callable[[], Awaitable[Any]]) -> None:
        await asyncio.sleep(after_s)
        await unless_closed(send, PAUSE_S)

    async def _cancel(self, run: Run) -> None:
        self._stage.say(f"run {run.id} is to be cancelled")
        await run.cancel("enough")

    async def _cancel_at_end(self, run: Run, steps: int) -> None:
        """When its last step begins, more or less, or when that is done: about when it ends."""
        chance = Random(f"{self._plan.seed} {run.id}")
        await self._stage.reader.until(run.id, steps - chance.choice((0, 0, 1)))
        await self._later(chance.choice((0.0, 0.0, 0.002, 0.01)), partial(self._cancel, run))

    # -- people ----------------------------------------------------------------------------------------

    async def _help(self, client: Client) -> None:
        chance, watch = Random(f"{self._plan.seed} people"), self._stage.reader.watch
        while True:
            await asyncio.sleep(0.2 + chance.random() ** 3 * 12.0)
            for kind, run_id, approval_id in watch.questions():
                run = client.run_handle(kind, run_id)
                # Two people may answer at once, neither of whom knows of the other.
                said = [
                    partial(run.reject, approval_id)
                    if chance.random() < 0.2
                    else partial(run.approve, approval_id, value=_said_to(kind, approval_id))
                    for _ in range(chance.choice((0, 1, 1, 2)))
                ]
                await asyncio.gather(*(unless_closed(one, PAUSE_S) for one in said))
            for kind, run_id, effect_id in watch.unknown():
                await self._decide(client.run_handle(kind, run_id), effect_id, chance)

    async def _decide(self, run: Run, effect_id: str, chance: Random) -> None:
        stage = self._stage
        alive = {machine.name for machine in stage.machines if machine.alive}
        status = stage.world.status(effect_id, alive)
        decided = decision(status, chance)
        if decided is None:
            return
        result = stage.world.result(effect_id) if decided == "result" else None
        stage.say(f"run {run.id}: {effect_id} is {status}: {decided}")
        await unless_closed(partial(run.resolve_effect, effect_id, decided, result), PAUSE_S)

    # -- operators -------------------------------------------------------------------------------------

    async def _grow_all(self, client: Client) -> None:
        for growth in self._plan.growths:
            await asyncio.sleep(max(0.0, growth.at_s - self._stage.loop.time()))
            await patiently(partial(self._grow, client, growth), PAUSE_S)

    async def _grow(self, client: Client, growth: Growth) -> None:
        newest = (await generations(client.log, growth.agent_type))[-1]
        wanted = self._grown.setdefault(growth, newest.partitions + growth.more)
        if newest.partitions < wanted:
            self._stage.say(f"{growth.agent_type} is to have {wanted} partitions")
            await client.grow(growth.agent_type, wanted)

    async def _spoil(self, spoil: Spoil) -> None:
        await asyncio.sleep(spoil.at_s)
        log, clock = self._log("spoiler"), self._stage.clock(f"spoiler {spoil.words}")
        orders = [["pure", spoil.words]]
        run_id = clock.uuid7()
        command = RunRequested(run_id=run_id, agent_type=CALLER, input={"orders": orders}).to_envelope(
            AgentRef("spoiler", "client", "local", clock.uuid7()),
            TraceContext(clock.token(16), clock.token(8)),
            correlation_id=run_id,
            partition_key=run_id,
            metadata={"to": CALLER},
            clock=clock,
        )
        self.spoiled.add(command.event_id)
        inbox = log.topology.inbox(CARRIER if spoil.kind == "type" else CALLER)
        [sound] = prepare_append([command], inbox, log.topology, CODEC)
        broken = sound._replace(key=f"not {run_id}") if spoil.kind == "key" else sound
        broken = broken._replace(value=b"spoiled") if spoil.kind == "bytes" else broken
        self._stage.say(f"run {run_id} was asked for, spoiled: {spoil.kind}")
        [position] = await patiently(partial(self._append, log, broken), PAUSE_S)
        self._letters.add(position)
        self._spoiling -= 1

    async def _append(self, log: EmbeddedLog, record: Any) -> list[Position]:
        await log.ensure_topics([log.topology.spec(record.topic)])
        place = partition_of(record.key, self._plan.partitions)
        return await log.store.append([record], [place])

    async def _mend(self, name: str) -> None:
        """Decide about dead letters, until there will be none any more."""
        log, clock = self._log(name), self._stage.clock(name)
        chance, me = Random(f"{self._plan.seed} {name}"), AgentRef(name, "client", "local", clock.uuid7())
        while True:
            await asyncio.sleep(1.0 + chance.random() * 12.0)
            try:
                letters = await dead_letters(log)
                for letter in letters:
                    if letter.status == "redriven" and letter.key is not None and "key" in letter.reason:
                        self._accepted(letter.key, CALLER, [["pure", self._words_of(log, letter)]])
                there = {letter.position for letter in letters}
                if not self._spoiling and self._letters <= there and all(x.status != "open" for x in letters):
                    return
                await self._decide_letters(await LetterDecider.opened(log, clock, me), chance)
            except (*AWAY, DeadLetterError):
                continue

    def _words_of(self, log: EmbeddedLog, letter: DeadLetter) -> Any:
        event = CODEC.decode(letter.value)
        return event.payload["input"]["orders"][0][1]

    async def _decide_letters(self, decider: LetterDecider, chance: Random) -> None:
        try:
            for kind in self._plan.kinds:
                for letter in decider.letters(kind, []):
                    hopeless = letter.event_type is None or (
                        not letter.reason.startswith("key") and chance.random() < 0.7
                    )
                    self._stage.say(f"dead letter {letter.position}: {'dropped' if hopeless else 'redriven'}")
                    await (decider.drop(letter) if hopeless else decider.redrive(letter))
        finally:
            await decider.close()


def _said_to(kind: str, approval_id: str) -> Any:
    """What a yes says beside: nothing, other arguments (some that the tool does not take), or `always`.

    All people say the same: another value than what was approved becomes a dead letter.
    """
    if kind not in TOOLERS:
        return None
    said: list[Any] = [None, {"arguments": {"words": EDITED}}, {"arguments": {"word": 1}}, {"always": True}]
    return Random(approval_id).choice([*said, None, said[-1]])
