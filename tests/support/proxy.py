"""A TCP proxy in front of a broker that can lose the answers to one kind of Kafka request."""

from __future__ import annotations

import asyncio
import contextlib
import struct

END_TXN = 26
PRODUCE = 0


class KafkaProxy:
    """Forwards to `target`; while `losing` names an API key, its answers (or the requests) are kept back.

    The broker has to advertise the proxy's port. With `lose_requests` the broker never sees them. `opened` is
    set with each connection; who waits for the next one clears it.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.losing: int | None = None
        self.lose_requests = False
        self.lost = 0
        self.opened = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, port: int) -> None:
        """Begin to forward."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = port

    async def close(self) -> None:
        """Cut all connections."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def takes(self, frame: bytes) -> bool:
        """Whether a request goes on to the broker; an `OSError` cuts its connection."""
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.opened.set()
        withheld: set[int] = set()
        try:
            upstream, down = await asyncio.open_connection("127.0.0.1", self.target)
            with contextlib.closing(down), contextlib.closing(writer):
                await asyncio.gather(
                    self._requests(reader, down, withheld), self._answers(upstream, writer, withheld)
                )
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side has gone, or the test is over: so has the other
        finally:
            self._tasks.discard(task)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, withheld: set[int]
    ) -> None:
        while True:
            frame = await frame_of(reader)
            api_key, _, correlation = struct.unpack_from(">hhi", frame, 4)
            if api_key == self.losing:
                self.lost += 1
                withheld.add(correlation)
                if self.lose_requests:
                    continue
            if self.takes(frame):
                writer.write(frame)
                await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, withheld: set[int]
    ) -> None:
        while True:
            frame = await frame_of(reader)
            if struct.unpack_from(">i", frame, 4)[0] not in withheld:
                writer.write(frame)
                await writer.drain()


async def frame_of(reader: asyncio.StreamReader) -> bytes:
    """The next request or answer, with its length before it."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">i", head)[0])
