"""A proxy that holds one EndTxn request back, cuts the client off, and hands the request over later.

To the client it looks like a connection that broke; its repetition on a new connection goes through. The copy
that was held reaches the broker when the test says so: as a packet that was late on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Any, Final, NamedTuple

from tests.support.proxy import END_TXN, KafkaProxy, frame_of

INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS: Final = 24
COORDINATORS: Final = (INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN)
"""What only a transaction's coordinator is asked for."""


class EndTxn(NamedTuple):
    """What an EndTxn request says, up to version 4, and the whole of it."""

    version: int
    transactional_id: str
    epoch: int
    commit: bool
    frame: bytes


class LateEndTxnProxy(KafkaProxy):
    """Forwards to `target`; see above.

    Attributes:
        hold_next: whether the next EndTxn is held back and its connection cut.
        held: what was held.
        seen: every EndTxn that went through.
        coordinated: who reads the connections, cut ones too, on which the coordinator alone was asked.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.hold_next = False
        self.held: EndTxn | None = None
        self.seen: list[EndTxn] = []
        self.coordinated: set[asyncio.Task[Any]] = set()

    def cut(self) -> None:
        """Break the connections to the coordinator."""
        for connection in self.coordinated:
            connection.cancel()

    def takes(self, frame: bytes) -> bool:
        """See `KafkaProxy.takes`."""
        reading = asyncio.current_task()
        if reading is not None and struct.unpack_from(">h", frame, 4)[0] in COORDINATORS:
            self.coordinated.add(reading)
        if struct.unpack_from(">h", frame, 4)[0] != END_TXN:
            return True
        request = parsed(frame)
        if self.hold_next:
            self.hold_next, self.held = False, request
            raise ConnectionResetError("cut by the test")
        self.seen.append(request)
        return True

    async def deliver(self) -> int:
        """Hand the held request to the broker; return the error code that it answers."""
        assert self.held is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        with contextlib.closing(writer):
            writer.write(self.held.frame)
            await writer.drain()
            answer = await frame_of(reader)
        # Length, correlation id, the tags of a flexible header, the throttle time, the error.
        flexible = self.held.version >= 3
        code: int = struct.unpack_from(">h", answer, 8 + flexible + 4)[0]
        return code


def parsed(frame: bytes) -> EndTxn:
    """Read an EndTxn request."""
    version = struct.unpack_from(">h", frame, 6)[0]
    at = 12
    length = struct.unpack_from(">h", frame, at)[0]
    at += 2 + max(length, 0)  # the client's id
    if version >= 3:  # compact strings, and tags behind the header
        at += 1
        length = frame[at] - 1
        at += 1
    else:
        length = struct.unpack_from(">h", frame, at)[0]
        at += 2
    name = frame[at : at + length].decode()
    _, epoch, commit = struct.unpack_from(">qhb", frame, at + length)
    return EndTxn(version, name, epoch, bool(commit), frame)
