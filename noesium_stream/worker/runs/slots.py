"""Slots, fairness keys and pacing: which runs of a worker's agent work now, and whose turn is next.

Slots limit the runs of an agent that work at the same time, over all of its partitions. A run takes a slot
when its turn comes and holds it while it works. A run that only waits holds no slot. It goes on when it is
woken, whether a slot is free or not: an answer is never stuck behind commands. Nor is a tenant stuck behind
long runs of another one: if all slots are taken, one run may start beside them for each fairness key that has
no run at work in its partition, up to an eighth of the slots.

Fairness keys: the commands of a partition start in turns, one of each key. The policy is round robin. The
keys form a circle, in the order of their bytes. Whenever a run may start, the next key with a waiting command
gives its oldest one. A key that has no run at work need not wait until runs of other keys end. So a tenant
with 10,000 commands, or a run that calls 10,000 others, delays the command of another tenant by one run at a
time. The only state is the key of the last turn, which is in the journal. Commands that start though no slot
is free have turns of their own, in the same order, which a new owner begins anew. So while a command waits
whose key has no run at work, two commands of another key may start, one by each of the two kinds of turns,
and not a third.

The key of a command is the one given to `Client.start(..., fairness_key=…)`; calls of such a run have the
same key. Otherwise the key of a call is that of its tree of runs (the correlation id), and the key of a
program's command is that of its producer (`Client(agent_id=…)`).

Pacing: runs of several tenants go on a few at a time, so that a new command does not wait for all of them.

Decision record: when a commit is on the log, all runs that have records in it go on in the same turn of the
event loop, which is then some fifty callbacks long. A command takes about five turns from the broker to its
own commit, and each of them may be such a long one. So if runs of several fairness keys start, `PACED_RUNS`
runs go on in each `PACED_TURNS` turns, about the time that a run takes to its next commit. The longest turns
(one in a hundred) then take 1.7 ms of the processor instead of 4.5. That costs 4 % of a run, because there
are more turns; so if all runs have the same key, they are not paced. Paced runs go on in turns, one of each
key: a lone run of one tenant does not wait for two hundred of another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import orjson

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import CALLS, FAIRNESS_KEY

CONCURRENCY: Final = 200
"""Default number of runs of each agent type that work at the same time in a worker."""

BESIDE: Final = 8
"""Number of slots for each extra slot, which serves keys that have no run at work."""

MAX_KEY_LENGTH: Final = 120
"""Greatest length of a fairness key in bytes, without its short prefix."""

PACED_RUNS: Final = 4
PACED_TURNS: Final = 5

REMEMBERED: Final = 500
"""Number of starts of one key in a row after which no other key is assumed to be active."""


class Holder:
    """The slots that one partition holds.

    Attributes:
        working: ids of the runs that hold a slot.
        busy: number of working runs by fairness key; keys without one are absent.
        gone: how many times the last working run of a key has stopped.
        resuming: open runs to resume when slots are free, in order.
        hungry: whether commands or open runs of the partition wait for a slot.
        wake: set when a slot may be free.
    """

    def __init__(self, slots: Slots) -> None:
        self.working: set[str] = set()
        self.busy: Counter[str] = Counter()
        self.gone = 0
        self.resuming: deque[str] = deque()
        self.hungry = False
        self.wake = asyncio.Event()
        self._pace = slots.pace
        self._keys: dict[str, str] = {}
        self._slots = slots

    def works(self, command: EventEnvelope) -> None:
        """Note that a command's run works, whether a slot was free or not."""
        run_id = command.partition_key or ""
        if run_id not in self.working:
            self.working.add(run_id)
            self._keys[run_id] = key = fairness_key(command)
            self.busy[key] += 1
            self._pace.begins(key)

    def pace_of(self, run_id: str) -> Callable[[], Awaitable[None]]:
        """Return the function that a working run awaits before it goes on."""
        return partial(self._pace.step, self._keys[run_id])

    def rests(self, run_id: str) -> None:
        """Free the slot of a run that only waits or has ended."""
        if run_id in self.working:
            self.gives_way(run_id)
            self._slots.freed()

    def gives_way(self, run_id: str) -> None:
        """Free the slot of a run that was about to work, without waking other partitions."""
        self.working.discard(run_id)
        key = self._keys.pop(run_id, None)
        if key is not None:
            self.busy[key] -= 1
            if not self.busy[key]:
                del self.busy[key]
                self.gone += 1

    def leaves(self) -> None:
        """Drop all that the partition holds."""
        self.working.clear()
        self.busy.clear()
        self._keys.clear()

    def resume(self, run_ids: Iterable[str]) -> None:
        """Queue open runs to resume when slots are free."""
        self.resuming.extend(run_ids)
        self.wake.set()

    def part_of(self, number: int) -> int:
        """Return an equal share of `number` for each partition of the agent that is at work."""
        return number // max(1, self._slots.at_work)


class Slots:
    """The slots of one agent of a worker.

    Args:
        most: number of slots.

    Attributes:
        pace: paces all runs of the agent.
    """

    def __init__(self, most: int = CONCURRENCY) -> None:
        self.most: Final = most
        self.pace = Pace()
        self._holders: list[Holder] = []

    def join(self) -> Holder:
        """Add a partition."""
        holder = Holder(self)
        self._holders.append(holder)
        return holder

    def leave(self, holder: Holder) -> None:
        """Remove a partition and free its slots; harmless when repeated."""
        if holder in self._holders:
            self._holders.remove(holder)
        holder.leaves()
        self.freed()

    def room(self, holder: Holder) -> int:
        """Number of runs that this partition may still start: its share of the free slots."""
        free = self.most - sum(len(other.working) for other in self._holders)
        hungry = sum(other.hungry or other is holder for other in self._holders)
        if hungry > 1:
            free = min(free, max(1, self.most // hungry) - len(holder.working))
        return max(0, free)

    def beside(self) -> int:
        """Number of runs that may start though no slot is free, each of a key that has no run at work."""
        return max(0, self.most + self.most // BESIDE - sum(len(holder.working) for holder in self._holders))

    @property
    def at_work(self) -> int:
        """Number of partitions that have runs at work or waiting to start."""
        return sum(bool(holder.working) or holder.hungry for holder in self._holders)

    def freed(self) -> None:
        """Wake the partitions that wait for a slot: one may be free."""
        for holder in self._holders:
            if holder.hungry:
                holder.wake.set()


class Pace:
    """Paces all runs of one agent of a worker."""

    def __init__(self) -> None:
        self._room = PACED_RUNS
        self._turns = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._last = ""
        self._others = 0

    def begins(self, key: str) -> None:
        """Note that a run of this fairness key starts."""
        if key != self._last and self._last:
            self._others = REMEMBERED
        elif self._others:
            self._others -= 1
        self._last = key

    async def step(self, key: str) -> None:
        """Return when a run of this fairness key may go on."""
        if not (self._others or self._waiting):
            return
        loop = asyncio.get_running_loop()
        if not self._turns:
            self._room, self._turns = PACED_RUNS, PACED_TURNS
            loop.call_soon(self._turn)
        if self._room:
            self._room -= 1
            return
        waits = loop.create_future()
        self._waiting.setdefault(key, deque()).append(waits)
        await waits

    def _turn(self) -> None:
        self._turns -= 1
        if not self._turns:
            if not self._waiting:
                return
            self._room, self._turns = PACED_RUNS, PACED_TURNS
            while self._waiting and self._room:
                waits = self._next()
                if not waits.done():  # it was cancelled
                    waits.set_result(None)
                    self._room -= 1
        asyncio.get_running_loop().call_soon(self._turn)

    def _next(self) -> asyncio.Future[None]:
        """Take the oldest waiting run of the key that has waited longest for its turn."""
        key, own = next(iter(self._waiting.items()))
        waits = own.popleft()
        if own:
            self._waiting.move_to_end(key)
        else:
            del self._waiting[key]
        return waits


def fairness_key(command: EventEnvelope) -> str:
    """Return the fairness key of a command: `MAX_KEY_LENGTH` bytes and a short prefix at most."""
    given = command.metadata.get(FAIRNESS_KEY)
    if isinstance(given, str) and given:
        return _short("key", given)
    if command.event_type in CALLS:
        return _short("run", command.correlation_id or command.event_id)
    return _short("agent", command.producer.agent_id)


def _short(kind: str, name: str) -> str:
    short = 2 * len(name) <= MAX_KEY_LENGTH and name.isascii() and name.isprintable()
    if not short and len(orjson.dumps(name)) > MAX_KEY_LENGTH + 2:  # its size in a header
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"{kind}:{name}"
