"""A proxy for one process on its way to a broker that others use too: it holds an EndTxn, or its answer.

The broker's answers name its own address; the proxy puts its own there, so that a client that comes through
it stays on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct

from tests.support.endtxn import EndTxn, parsed
from tests.support.proxy import END_TXN, KafkaProxy, frame_of

HOST = b"127.0.0.1"


class WireProxy(KafkaProxy):
    """Holds the `number`-th EndTxn that commits a transaction of an owner, or what the broker answers to it.

    Args:
        bootstrap: address of the broker; its host has as many letters as 127.0.0.1.
        what: `request` or `answer`; None: nothing is held.
        number: which, from 1.

    Attributes:
        held: set when it is held; with `request` the broker has not seen it.
        request: what was held.
    """

    def __init__(self, bootstrap: str, what: str | None = None, number: int = 1) -> None:
        host, _, port = bootstrap.rpartition(":")
        assert len(host) == len(HOST), f"{bootstrap}: its host is to be replaced by {HOST.decode()}"
        super().__init__(int(port))
        self._theirs = host.encode() + struct.pack(">i", int(port))
        self._what = what
        self._left = number
        self.held = asyncio.Event()
        self.request: EndTxn | None = None

    @property
    def bootstrap(self) -> str:
        """The address that clients use."""
        return f"{HOST.decode()}:{self.port}"

    async def open(self) -> None:
        """Begin to forward, at some port."""
        await self.listen(0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def deliver(self) -> int:
        """Hand the held request to the broker; the error code that it answers."""
        assert self.request is not None
        reader, writer = await asyncio.open_connection(HOST.decode(), self.target)
        with contextlib.closing(writer):
            writer.write(self.request.frame)
            await writer.drain()
            answer = await frame_of(reader)
        code: int = struct.unpack_from(">h", answer, 8 + (self.request.version >= 3) + 4)[0]
        return code

    def _is_it(self, frame: bytes) -> bool:
        if struct.unpack_from(">h", frame, 4)[0] != END_TXN or self._what is None or self.held.is_set():
            return False
        request = parsed(frame)
        if not request.commit or ".writer." not in request.transactional_id:
            return False
        self._left -= 1
        if self._left == 0:
            self.request = request
        return self._left == 0

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, withheld: set[int]
    ) -> None:
        while True:
            frame = await frame_of(reader)
            if self._is_it(frame):
                withheld.add(struct.unpack_from(">hhi", frame, 4)[2])
                if self._what == "request":
                    self.held.set()
                    continue
            writer.write(frame)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, withheld: set[int]
    ) -> None:
        ours = HOST + struct.pack(">i", self.port)
        while True:
            frame = await frame_of(reader)
            if struct.unpack_from(">i", frame, 4)[0] in withheld:
                self.held.set()
                continue
            writer.write(frame.replace(self._theirs, ours))
            await writer.drain()
