"""A line between clients and a broker that can be slow, hold bytes back or break: a TCP proxy.

link = Link(broker_port)
await link.listen()
link.up.delay_s = 0.3        # what goes to the broker is late
link.down.held = True        # answers wait until it is False again
link.cut()                   # all connections break, and nobody comes in until `mend()`
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET, socket
from typing import Final

_CHUNK: Final = 65_536
_CHUNKS_HELD: Final = 64
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass
class Lane:
    """One direction of a link.

    Attributes:
        delay_s: how late bytes are.
        held: whether they wait.
        carried: how many have gone through.
        sees: called with the API key of each request before it goes on, or None.
    """

    delay_s: float = 0.0
    carried: int = 0
    sees: Callable[[int], None] | None = None
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._open.set()

    @property
    def held(self) -> bool:
        return not self._open.is_set()

    @held.setter
    def held(self, held: bool) -> None:
        if held:
            self._open.clear()
        else:
            self._open.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take bytes from here to there until one side ends."""
        requests = Requests()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_HELD)
        loop = asyncio.get_running_loop()

        async def take() -> None:
            while data := await reader.read(_CHUNK):
                await queue.put((loop.time(), data))
            await queue.put((loop.time(), b""))

        taking = asyncio.create_task(take())
        try:
            while True:
                came_s, data = await queue.get()
                late_s = came_s + self.delay_s - loop.time()
                if late_s > 0:
                    await asyncio.sleep(late_s)
                await self._open.wait()
                if not data:
                    break
                for key in requests.feed(data):
                    if self.sees is not None:
                        self.sees(key)
                writer.write(data)
                await writer.drain()
                self.carried += len(data)
        finally:
            taking.cancel()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await taking


class Requests:
    """Finds the requests in a stream of bytes."""

    def __init__(self) -> None:
        self._rest = 0
        self._head = b""

    def feed(self, data: bytes) -> Iterator[int]:
        """The API keys of the requests that begin in the next bytes."""
        at = 0
        while at < len(data):
            if self._rest:
                skipped = min(self._rest, len(data) - at)
                self._rest -= skipped
                at += skipped
                continue
            taken = data[at : at + 6 - len(self._head)]
            self._head += taken
            at += len(taken)
            if len(self._head) == 6:
                size, key = struct.unpack(">ih", self._head)
                self._head, self._rest = b"", size - 2
                yield key


class Link:
    """Forwards from `port` to `target`, ports of this machine.

    Attributes:
        up: from the clients to the broker.
        down: from the broker to the clients.
        cuts: connections that were broken.
    """

    def __init__(self, target: int, port: int = 0) -> None:
        self.target = target
        self.port = port
        self.up = Lane()
        self.down = Lane()
        self.cuts = 0
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self._ends: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    async def listen(self) -> None:
        """Begin to forward."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def strike_at(self, key: int, strike: Callable[[], None]) -> None:
        """Call `strike` once, when a client sends the next request of this API key."""

        def sees(seen: int) -> None:
            if seen == key:
                self.up.sees = None
                strike()

        self.up.sees = sees

    def cut(self) -> None:
        """Break all connections with a reset; until `mend` new ones are broken at once."""
        self._is_cut = True
        self.snap()

    def snap(self) -> None:
        """Break all connections with a reset; new ones are taken at once."""
        for task, ends in list(self._ends.items()):
            self.cuts += 1
            for end in ends:
                _reset(end)
            task.cancel()

    def mend(self) -> None:
        """All is well again; what was held goes on where its connection stands yet."""
        self._is_cut = False
        for lane in (self.up, self.down):
            lane.delay_s, lane.held = 0.0, False

    async def close(self) -> None:
        """Break all, and listen no more."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._ends)
        self.cut()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            _reset(writer)
            return
        task = asyncio.current_task()
        assert task is not None
        self._ends[task] = [writer]
        try:
            upstream, down = await asyncio.open_connection("127.0.0.1", self.target)
            self._ends[task].append(down)
            carrying = [
                asyncio.create_task(self.up.carry(reader, down)),
                asyncio.create_task(self.down.carry(upstream, writer)),
            ]
            try:
                await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in carrying:
                    one.cancel()
                await asyncio.gather(*carrying, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the broker is not there, or the line was cut
        finally:
            for end in self._ends.pop(task, ()):
                with contextlib.suppress(OSError):
                    end.close()


def _reset(end: asyncio.StreamWriter) -> None:
    """Close at once, as a firewall or a dead machine does it: without a goodbye."""
    sock: socket | None = end.get_extra_info("socket")
    with contextlib.suppress(OSError):
        if sock is not None:
            sock.setsockopt(SOL_SOCKET, SO_LINGER, _RESET)
        end.transport.abort()
