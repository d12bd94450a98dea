"""The leases of other members, as one member judges them.

A lease is a row with an end in wall-clock time, so that a process that starts later knows it too. Wall clocks
are set, and may differ between processes. So the row's end counts only when a lease is seen for the first
time, and at most one length of a lease counts of it. From then on the judging member measures with its own
monotonic clock:

 - A lease that ends in the past when it is first seen has expired: its holder died some time ago.
 - A lease that ends further ahead than its length was written by a clock that was ahead, or the clock has
   been set back since. It lasts one length from now. It is not dropped at once: its holder may live, and
   renews it within that time.
 - A lease that was seen to be renewed belongs to a member that lives, whatever its clock says. It lasts one
   length from then, or until its end, if that is sooner and not past.
 - Between two looks at most half a length passes. When more has, the judging member stood still, perhaps
   with all others: they wait together while one of them commits to a slow disk, and its lease is the older.

A member whose own clock is ahead may drop a live one when it sees its lease for the first time, never again.
That is a handover like any other: the partition's epoch rises, offsets and tenures of the dropped member are
void, and its writer is fenced as soon as the new owner opens its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class _Seen(NamedTuple):
    lease_ms: int
    ends_s: float


class LeaseWatch:
    """Decides which members' leases have expired; one for each member of a group."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._looked_s: float | None = None

    def expired(
        self, leases: Iterable[tuple[str, int]], now_ms: int, monotonic_s: float, length_s: float
    ) -> list[str]:
        """The members whose leases have expired, in the order given.

        Args:
            leases: each other member and the end of its lease, in milliseconds since the epoch.
            now_ms: milliseconds since the epoch, by this member's clock.
            monotonic_s: seconds of this member's monotonic clock.
            length_s: the length of a lease, in seconds.
        """
        before, self._seen = self._seen, {}
        looked_s = monotonic_s if self._looked_s is None else self._looked_s
        still_s = max(0.0, monotonic_s - looked_s - length_s / 2)
        self._looked_s = monotonic_s
        late = []
        for member, lease_ms in leases:
            seen = before.get(member)
            if seen is None or seen.lease_ms != lease_ms:
                left_s = (lease_ms - now_ms) / 1000
                if left_s < 0 and seen is not None:
                    left_s = length_s
                seen = _Seen(lease_ms, monotonic_s + min(left_s, length_s))
            else:
                seen = seen._replace(ends_s=seen.ends_s + still_s)
            self._seen[member] = seen
            if seen.ends_s < monotonic_s:
                late.append(member)
        return late
