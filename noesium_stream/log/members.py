"""Names of group members, and the errors of a member that has lost a partition; shared by all backends."""

from __future__ import annotations

import os
import socket
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import TenureEndedError
from noesium_stream.log.port import TopicPartition

TENURE_HINT: Final = "Take it from a subscription of the same log."


def this_process() -> str:
    """The name of this process in groups: `host/pid` (see `process_of`)."""
    return f"{socket.gethostname()}/{os.getpid()}"


def member_name(clock: Clock) -> str:
    """A new member's name: host, process, and an id that orders it among the members of its process."""
    return f"{this_process()}/{clock.uuid7()}"


def tenure_ended(tp: TopicPartition, what: str) -> TenureEndedError:
    """The error for a partition that another member holds, or may hold by now."""
    return TenureEndedError(
        f"{what}: the group does not leave {tp.topic}/{tp.partition} to this member any more.",
        hint="Nothing of it is on the log. Drop what belongs to the partition, until it is assigned again.",
    )
