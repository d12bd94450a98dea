"""The slices of accounts that a run has been granted: a fold over the run's records, in order.

A user's or a tenant's budget spans runs in several partitions. The owner of the account's partition grants
slices of it (`agent/accounts`), each to one run, and the run's calls reserve what they may take within its
slices, in the commit of their intent. So an account's limit is kept by two folds, each with one writer, and
no lock: what is granted and not yet settled is never more than what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import MAX_INT
from noesium_stream.event.standard.agent import Amounts

COUNTED: Final = ("nano_usd", "tokens", "calls")
"""What accounts count."""
REQUESTED: Final = "budget.requested"
ANSWERS: Final = frozenset({"budget.granted", "budget.refused"})
SETTLED: Final = "budget.settled"
OF_RUNS: Final = frozenset({REQUESTED, SETTLED, *ANSWERS})
"""Types of the events about the slices of runs."""
TREASURER: Final = "treasurer"
"""The agent type that grants slices."""
DOMAIN: Final = "budget"


class Want(NamedTuple):
    """What a call may take; `nano_usd` None: its price is not known."""

    tokens: int
    nano_usd: int | None
    calls: int = 1


@dataclass(slots=True)
class Slices:
    """What a run has of accounts.

    Attributes:
        run_id: the run; a fork does not have the slices of the run that it branches off.
        granted: by account and kind; None: that kind is not limited.
        open: by account, the id of the request that waits for its answer.
        asked: by account, the number of requests.
        refused: by request id, the refusal's payload.
    """

    run_id: str | None = None
    granted: dict[str, dict[str, int | None]] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    refused: dict[str, dict[str, Any]] = field(default_factory=dict)

    def apply(self, event: EventEnvelope) -> None:
        """Apply the next record; one of another type, or about another run, changes nothing."""
        payload = event.payload
        if event.event_type not in OF_RUNS or payload.get("run_id") != self.run_id:
            return
        account = payload["account"]
        if event.event_type == REQUESTED:
            self.open[account] = payload["request_id"]
            self.asked[account] = self.asked.get(account, 0) + 1
        elif event.event_type in ANSWERS and self.open.get(account) == payload["request_id"]:
            del self.open[account]
            if event.event_type == "budget.refused":
                self.refused[payload["request_id"]] = payload
            else:
                self._grant(account, payload["granted"])

    def carry(self, account: str, granted: Mapping[str, int | None] | None, asked: int) -> None:
        """Begin a segment of the run with what it has been granted of an account before.

        Args:
            account: who pays.
            granted: by kind, as in `granted`; None: nothing.
            asked: how often it has asked.
        """
        self.asked[account] = asked
        if granted is not None:
            self.granted[account] = {kind: granted.get(kind, 0) for kind in COUNTED}

    def awaits(self, request_id: str) -> bool:
        """Whether a request of this id has no answer yet."""
        return request_id in self.open.values()

    def shortfall(
        self, account: str, want: Want, used: Mapping[str, int], added: Mapping[str, int]
    ) -> Amounts | None:
        """What is missing for a call; None: nothing.

        Args:
            account: who pays.
            want: what the call may take.
            used: what the run has spent or reserved so far, by kind.
            added: what people have allowed beyond, by kind.
        """
        granted = self.granted.get(account)
        missing: dict[str, int | None] = {}
        is_short = granted is None
        for kind in COUNTED:
            wanted, has = getattr(want, kind), 0 if granted is None else granted.get(kind, 0)
            if has is None:
                missing[kind] = 0
            elif wanted is None:
                missing[kind], is_short = None, True
            else:
                lacks = used[kind] + wanted - has - added.get(kind, 0)
                missing[kind] = min(max(0, lacks), MAX_INT)
                is_short = is_short or lacks > 0
        return Amounts(**missing) if is_short else None

    def _grant(self, account: str, granted: Mapping[str, Any]) -> None:
        before = self.granted.setdefault(account, dict.fromkeys(COUNTED, 0))
        for kind in COUNTED:
            more, had = granted.get(kind), before[kind]
            before[kind] = None if more is None or had is None else min(had + max(0, more), MAX_INT)
