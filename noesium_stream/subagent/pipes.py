"""The pipes of a program: its lines, bounded, and the end of what it writes to standard error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from noesium_stream.errors import SubagentProtocolError

TAIL: Final = 2_000
"""Bytes of standard error that are remembered."""
_OUT, _ERR = 1, 2


class Lines:
    """Bytes as they come, cut into lines; an answer's lines together have at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._taken = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now.

        Raises:
            SubagentProtocolError: there are too many bytes without a pause.
        """
        self._taken += len(data)
        if self._taken > self._most:
            raise SubagentProtocolError(f"printed more than {self._most:,} bytes for one answer")
        self._rest += data
        if b"\n" not in data:
            return []
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        return [bytes(line.removesuffix(b"\r")) for line in lines]

    def pause(self) -> None:
        """Count from here: an answer is complete."""
        self._taken = len(self._rest)


class Pipes(asyncio.SubprocessProtocol):
    """The pipes of one process; it calls back for lines, and for the end of its output.

    Args:
        lines: cuts its output.
        hear: takes a line; raises `SubagentProtocolError` if it is wrong.
        fault: called once: what is wrong with its output, or None at its end.

    Attributes:
        exited: the process has ended.
        ended: and all that it has written was read.
    """

    def __init__(
        self,
        lines: Lines,
        hear: Callable[[bytes], None],
        fault: Callable[[SubagentProtocolError | None], None],
    ) -> None:
        self._lines = lines
        self._hear = hear
        self._fault: Callable[[SubagentProtocolError | None], None] | None = fault
        self._tail = bytearray()
        self._transport: asyncio.SubprocessTransport | None = None
        self.exited = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def errors(self) -> bytes:
        """The end of what it wrote to standard error."""
        return bytes(self._tail)

    @property
    def status(self) -> int | None:
        """Its exit status; None: it runs."""
        return None if self._transport is None else self._transport.get_returncode()

    def write(self, data: bytes) -> None:
        """Write to its standard input, which never blocks: what it has not read waits in this process."""
        pipe = self._stdin()
        if pipe is not None and not pipe.is_closing():
            pipe.write(data)

    def close_stdin(self) -> None:
        """Let it read the end of its input."""
        pipe = self._stdin()
        if pipe is not None and not pipe.is_closing():
            pipe.abort()

    def close(self) -> None:
        """Close all pipes; the process, if it is there, is killed."""
        if self._transport is not None:
            self._transport.close()

    def _stdin(self) -> asyncio.WriteTransport | None:
        if self._transport is None:
            return None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))

    def _tell(self, error: SubagentProtocolError | None) -> None:
        tell, self._fault = self._fault, None
        if tell is not None:
            tell(error)

    # -- asyncio.SubprocessProtocol --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take what it has written; behind a fault it is dropped."""
        if fd == _ERR:
            self._tail += data[-TAIL:]
            del self._tail[:-TAIL]
            return
        if self._fault is None:
            return
        try:
            for line in self._lines.feed(data):
                self._hear(line)
        except SubagentProtocolError as error:
            self._tell(error)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note the end of its output."""
        if fd == _OUT:
            self._tell(None)

    def process_exited(self) -> None:
        """Note its end; what its pipes still hold may come later."""
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that nothing more comes."""
        self.ended.set()
