"""Whose turn it is: the commands of a partition begin in turns, one of each fairness key.

The policy: the keys stand in a circle, in the order of their bytes. Whenever a run may begin, the next key
after the last one that has a command waiting gives its oldest. A key none of whose runs is at work need not
wait for runs of others to end (`slots`). So a tenant with 10,000 commands, or a run
that asks for 10,000 others, delays another one's command by one run at a time. Nothing is kept but the key
that was last, which the journal tells. Those that begin where no slot is free have turns of their own, in the
same order, which a new owner begins anew. So while a command waits whose key has no run at work, two of
another key may begin, one by each of the two kinds of turns, and not a third.

The key of a command is what `Client.start(..., fairness_key=…)` said; a call of a run that was started so has
the same. Else it is that of the tree of runs for a call (its correlation id), and of the producer
(`Client(agent_id=…)`) for what a program asks.
"""

from __future__ import annotations

import hashlib
from typing import Final

import orjson

from noesium_stream.event.calls import CALLS, FAIRNESS_KEY
from noesium_stream.event.envelope import EventEnvelope

MAX_LENGTH: Final = 120


def fairness_key(command: EventEnvelope) -> str:
    """The key in whose turn a command begins; at most `MAX_LENGTH` bytes and a few."""
    given = command.metadata.get(FAIRNESS_KEY)
    if isinstance(given, str) and given:
        return _short("key", given)
    if command.event_type in CALLS:
        return _short("run", command.correlation_id or command.event_id)
    return _short("agent", command.producer.agent_id)


def _short(kind: str, name: str) -> str:
    short = 2 * len(name) <= MAX_LENGTH and name.isascii() and name.isprintable()
    if not short and len(orjson.dumps(name)) > MAX_LENGTH + 2:  # as it is in a header
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"{kind}:{name}"
