"""`noesium run` on a Kafka whose workers are killed and paused at random, beside the same undisturbed.

    trial = await play_trial(launcher, folder, bootstrap, seed)
    assert trial.faults == []

Each question is asked twice: of a worker that nobody touches, and of a crew of three. Of that, every one to
three seconds, one is killed (SIGKILL) and another one started, or one stands still (SIGSTOP) for longer than
its session and goes on. Calls of which nobody knows what came of them are decided on by somebody who looks at
the ledger.

What has to hold, beside the rules of the harness (`check`):

- answer: both commands write the same to standard output, byte for byte, and end with 0.
- show: `noesium show` has the same steps of both, each once, and each done.
- effect: all that a run does outside is done once.
- late: a worker that has stood still past its session calls nothing (that it commits nothing is a rule of
  the harness).
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from noesium_stream.kernel.step.effect import NOT_BEGUN
from tests.chaos.cluster_judge import MEANWHILE_S, called_late
from tests.chaos.launcher import Launched, Launcher
from tests.chaos.ledger import read_ledger
from tests.chaos.stage import Stage, said
from tests.chaos.workload import CALLER, KINDS
from tests.chaos.zygote import AGENTS, SESSION_S
from tests.sim.cast import answer_of
from tests.support.invariants import Asked, Book, read_book

AGENT: Final = AGENTS[0]
CREW: Final = 3
PARTITIONS: Final = 2
PATIENCE_S: Final = 400.0
PROVED_S: Final = SESSION_S / 4 + MEANWHILE_S
"""So long after the log has said that a run is its own a process may call (`shorten_sessions`)."""

Orders = list[list[Any]]


@dataclass(slots=True)
class Trial:
    """What came of it.

    Attributes:
        faults: what does not hold, one line each.
        killed, paused: how many workers.
        takeovers: how often one of the runs went on in another process.
        took_s: from the first kill to the last answer.
    """

    seed: int
    faults: list[str] = field(default_factory=list)
    killed: int = 0
    paused: int = 0
    takeovers: int = 0
    took_s: float = 0.0

    def __str__(self) -> str:
        struck = f"{self.killed} killed, {self.paused} paused, {self.takeovers} takeovers of runs"
        return f"seed {self.seed}: {struck}, {self.took_s:.0f} s, {len(self.faults)} faults"


def orders_of(chance: Random, name: str, naps: int) -> Orders:
    """A question of many steps: effects of both classes, timers, calls of another agent, branches."""
    words = (f"{name}-{number}" for number in range(1_000))

    def nap() -> list[Any]:
        # Who stands still meanwhile is about to call something when it goes on.
        return ["later", next(words), round(chance.uniform(0.3, 1.0), 2)]

    def effect() -> list[Any]:
        return [chance.choice(("external", "external", "idempotent", "undoable")), next(words)]

    orders: Orders = []
    for number in range(naps):
        orders += [effect(), nap()]
        if number % 3 == 0:
            orders.append(["call", [effect(), nap(), effect()]])
        elif number % 3 == 1:
            orders.append(["fan", [effect(), nap(), effect(), ["call", [effect()]]]])
    return [*orders, ["emit", next(words)], effect()]


async def play_trial(
    launcher: Launcher,
    folder: Path,
    bootstrap: str,
    seed: int,
    *,
    questions: int = 2,
    naps: int = 4,
    for_s: float = 15.0,
) -> Trial:
    """Play it.

    Args:
        launcher: starts the processes; their sessions are short.
        folder: for all that they keep; new.
        bootstrap: of the broker.
        seed: of the questions, and of what is done to whom and when.
        questions: how many are asked at the same time.
        naps: of each question; it takes about a second for each, undisturbed.
        for_s: so long workers are struck, if there are no answers before.
    """
    trial, chance = Trial(seed), Random(f"{seed} at random")
    asked = {f"q{number}": orders_of(chance, f"q{number}", naps) for number in range(questions)}

    def stage(name: str) -> Stage:
        own = folder / name
        url = f"kafka://{bootstrap}?namespace={folder.name}{name}&partitions={PARTITIONS}"
        return Stage(launcher, own, url, f"{seed} {name}", gives_up=False)

    async with stage("calm") as calm, stage("wild") as wild:
        await calm.start("calm", agents=AGENTS[:2])
        expected = asyncio.create_task(_ask_all(calm, asked))
        crew = _Crew(wild, trial, chance)
        for _ in range(CREW):
            await crew.join()
        killing = asyncio.create_task(crew.strike(for_s))
        begun = time.monotonic()
        try:
            found = await _ask_all(wild, asked)
            if killing.done():
                killing.result()
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
        trial.took_s = time.monotonic() - begun
        calmly = await expected
        for name in asked:
            trial.faults += _differences(name, asked[name], found[name], calmly[name])
        crew.wake()
        await wild.stop()
        trial.faults += await wild.judge()
        book = await read_book(wild.log, KINDS)
        ledger = read_ledger(wild.ledger)
        trial.faults += called_late(book, ledger, lambda event: event.producer.runtime_id, PROVED_S)
        trial.faults += _not_once(book, Counter((call.words, call.key) for call in ledger if call.outcome))
        trial.takeovers = sum(
            len({event.producer.runtime_id for event in events}) - 1 for events in book.runs.values()
        )
    return trial


@dataclass(frozen=True, slots=True)
class Answer:
    """What `noesium run` and `noesium show` of a run have written to standard output."""

    out: bytes
    shown: bytes


async def _ask_all(stage: Stage, asked: Mapping[str, Orders]) -> dict[str, Answer]:
    answers = await asyncio.gather(*(_ask(stage, name, orders) for name, orders in asked.items()))
    return dict(zip(asked, answers, strict=True))


async def _ask(stage: Stage, name: str, orders: Orders) -> Answer:
    given = json.dumps({"orders": orders})
    asking, out = await _command(stage, name, "run", AGENT, "--input", given)
    run_id = next(line for line in asking.said().splitlines() if line.startswith("run ")).split()[1]
    stage.asked[run_id] = Asked(run_id, CALLER, [{"got": [answer_of(order) for order in orders]}])
    _, shown = await _command(stage, f"show-{name}", "show", run_id, "--json")
    return Answer(out, shown)


async def _command(stage: Stage, name: str, *words: str) -> tuple[Launched, bytes]:
    """Run `noesium WORDS`; give what it has written to standard output."""
    out = stage.folder / f"{name}.out"
    process = await stage.start(name, role="command", more={"words": words, "out": str(out)})
    code = await process.ended(PATIENCE_S)
    assert code == 0, (words, code, said(process))
    return process, out.read_bytes()


class _Crew:
    """Three workers, of which one is struck every now and then: half of the time one that has a run."""

    def __init__(self, stage: Stage, trial: Trial, chance: Random) -> None:
        self._stage, self._trial, self._chance = stage, trial, chance
        self._alive: list[Launched] = []
        self._paused: list[Launched] = []
        self._count = 0

    async def join(self, home: Path | None = None) -> None:
        self._count += 1
        name = f"worker{self._count}"
        self._alive.append(await self._stage.start(name, agents=AGENTS[:2], home=home))

    async def strike(self, for_s: float) -> None:
        """From when a run has begun, for so long; who has one is the first to be killed, and to be paused."""
        chance, reader = self._chance, self._stage.reader
        await reader.until(lambda: bool(reader.known), PATIENCE_S)
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            await asyncio.sleep(chance.uniform(1.0, 3.0))
            first = self._trial.killed == 0 or self._trial.paused == 0
            victim = self._owner() if first or chance.random() < 0.5 else None
            victim = victim or chance.choice(self._alive)
            pauses = self._trial.paused == 0 if first else chance.random() < 0.3
            await self._strike(victim, pauses=pauses and self._trial.killed > 0)

    async def _strike(self, victim: Launched, *, pauses: bool) -> None:
        self._alive.remove(victim)
        if pauses:
            self._trial.paused += 1
            victim.signal(signal.SIGSTOP)
            self._paused.append(victim)
            for_s = self._chance.uniform(1.5, 3.0) * SESSION_S
            asyncio.get_running_loop().call_later(for_s, partial(self._wake, victim))
            if len(self._alive) == 1:
                await self.join()
            return
        self._trial.killed += 1
        await self._stage.kill(victim)
        # With what the dead one has kept, or without.
        await self.join(victim.home if self._chance.random() < 0.5 else None)

    def _owner(self) -> Launched | None:
        """One of those that have an open run, if it lives."""
        reader = self._stage.reader
        owners: dict[tuple[str, int], str] = {}
        places: dict[str, tuple[str, int]] = {}
        for kind, records in reader.seen.items():
            for record in records:
                place = (kind, record.partition)
                if record.event_type == "partition.acquired":
                    owners[place] = record.envelope.producer.runtime_id
                elif record.key in reader.known and record.key not in reader.ended:
                    places[record.key] = place
        names = {owners[place] for place in places.values()}
        found = [one for one in self._alive if one.name in names]
        return self._chance.choice(found) if found else None

    def wake(self) -> None:
        """Let all that stand still go on."""
        for one in list(self._paused):
            self._wake(one)

    def _wake(self, one: Launched) -> None:
        if one in self._paused:
            one.signal(signal.SIGCONT)
            self._paused.remove(one)
            self._alive.append(one)


def _differences(name: str, orders: Orders, found: Answer, expected: Answer) -> Iterator[str]:
    given = {"got": [answer_of(order) for order in orders]}
    if found.out != expected.out or json.loads(found.out) != given:
        yield f"answer: of {name} is {found.out!r}, undisturbed {expected.out!r}"
    steps, right = _steps(json.loads(found.shown)), _steps(json.loads(expected.shown))
    if Counter(steps) != Counter(right):
        more, less = Counter(steps) - Counter(right), Counter(right) - Counter(steps)
        yield f"show: {name} has {more}, where undisturbed it has {less}"
    twice = [step for step, count in Counter(steps).items() if count > 1]
    if twice or not steps:
        yield f"show: {name} has {twice} twice, of {len(steps)} steps"


def _steps(tree: Mapping[str, Any], path: str = "") -> list[tuple[Any, ...]]:
    """All steps of a run and of those that it called: where, what, how it ended, with which effects."""
    found: list[tuple[Any, ...]] = [(path, tree["agent_type"], tree["status"])]
    for step in tree["steps"]:
        place = f"{path}/{step['step']}.{step['task_path']}"
        # One that failed was not begun: its process might not call any more. The next owner makes another.
        named = ((effect["name"], effect["status"]) for effect in step["effects"])
        effects = tuple(sorted(each for each in named if each[1] != "failed"))
        found.append((place, step["node"], step["status"], effects))
        for number, call in enumerate(sorted(step["calls"], key=_what)):
            found += _steps(call["run"], f"{place}>{number}")
    return found


def _what(call: Mapping[str, Any]) -> str:
    return json.dumps(call["output"], sort_keys=True)


def _not_once(book: Book, done: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Effects that were done under two keys, more than once, or not at all."""
    classes: dict[str, str] = {}
    key_of: dict[str, str] = {}
    not_begun: set[str] = set()
    for events in book.runs.values():
        for event in events:
            if event.event_type == "effect.requested":
                key = event.payload["idempotency_key"]
                classes[key], key_of[event.payload["effect_id"]] = event.payload["effect_class"], key
            elif event.event_type == "effect.failed" and event.payload["message"] == NOT_BEGUN:
                not_begun.add(key_of[event.payload["effect_id"]])
    keys = Counter(words for words, _ in done)
    for (words, key), count in done.items():
        if keys[words] > 1:
            yield f"effect: {words} was done under {keys[words]} keys"
        if count > 1 and classes.get(key) != "idempotent":
            yield f"effect: {words} was done {count} times"
    for key in classes.keys() - not_begun - {key for _, key in done}:
        yield f"effect: {key} was asked for, and never done"
