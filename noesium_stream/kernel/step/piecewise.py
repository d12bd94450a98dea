"""Calls whose answers are read in pieces.

The call itself is an ordinary one: `Invocation` records it, and says here which runs it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.stream_pieces import Piece
from noesium_stream.kernel.journal import IncomingPieces
from noesium_stream.kernel.step.pieces import pieces_of
from noesium_stream.kernel.step.position import Place

_EXPECTED_BY: ContextVar[IncomingPieces | None] = ContextVar("noesium_incoming_pieces", default=None)
"""Takes the pieces of the call that the current task makes."""


def expect_pieces(invoked: EventEnvelope) -> None:
    """Note that the current task waits for the answer of this call: whoever reads its pieces gets them."""
    incoming = _EXPECTED_BY.get()
    if incoming is not None and "target_agent_id" in invoked.payload:  # else a task: who has it is not known
        payload = invoked.payload
        incoming.expect(payload["run_id"], payload["target_agent_type"], payload["target_agent_id"])


class PiecewiseAnswer:
    """The answer of a call, in pieces and as a whole.

    The call begins with the first use. Pieces are for showing and passing on, and some may be lost: what a
    node keeps, and what it decides by, is `result()` alone. Where the answer is on the log already (a replay,
    another execution of the node), there are no pieces.
    """

    def __init__(self, place: Place, invoke: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._place = place
        self._invoke = invoke
        self._task: asyncio.Task[Any] | None = None
        own = place.journal.pieces
        self._incoming = None if own is None else own.incoming()

    def __aiter__(self) -> AsyncIterator[Piece]:
        """The pieces, until the answer is there or the call has failed."""
        return self._pieces()

    async def result(self) -> Any:
        """Wait for the answer and return it; raises as `Step.invoke` does."""
        return await self._begin()

    def close(self) -> None:
        """End the call's task: the node has ended."""
        if self._task is not None:
            self._task.cancel()
        if self._incoming is not None:
            self._incoming.close()

    async def _pieces(self) -> AsyncIterator[Piece]:
        incoming = self._incoming
        if incoming is None:
            await asyncio.wait((self._begin(),))
            return
        await incoming.open()
        task = self._begin()
        following: asyncio.Task[Piece] | None = None
        try:
            while True:
                following = following or asyncio.create_task(incoming.next())
                await asyncio.wait((following, task), return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    break
                piece, following = following.result(), None
                yield piece
        finally:
            if following is not None:
                following.cancel()
        for piece in await incoming.rest():
            yield piece

    def _begin(self) -> asyncio.Task[Any]:
        if self._task is None:
            self._place.check_open()
            pieces_of(self._place).answers.append(self)
            self._task = asyncio.create_task(self._called())
            self._task.add_done_callback(_retrieved)
        return self._task

    async def _called(self) -> Any:
        _EXPECTED_BY.set(self._incoming)  # of this task alone
        return await self._invoke()


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody asks for: the node has ended in another way."""
    if not task.cancelled():
        task.exception()
