"""One client per event loop: its open connections belong to the loop that opened them.

Decision record: connections that outlive their event loop fail the first call of the next one ("Event loop is
closed"), whether one client is used in both or two clients share a cache of the process. An asynchronous
generator marks the end of the loop: `asyncio` closes those that are not exhausted before a loop is closed,
and those that nobody refers to while it runs.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """A client of the running event loop, made when the loop asks for it first.

    Args:
        make: makes a client.
        close: closes a client's connections; called on its event loop before this is closed, or when nobody
            refers to this object any more.
        first: a client that was made already, for the first event loop; None: there is none.
    """

    def __init__(
        self, make: Callable[[], T], close: Callable[[T], Awaitable[None]], first: T | None = None
    ) -> None:
        self._make = make
        self._close = close
        self._first = first
        self._lock = threading.Lock()
        self._clients: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}

    async def get(self) -> T:
        """The running event loop's client; raises what `make` raises."""
        loop = asyncio.get_running_loop()
        found = self._clients.get(loop)
        if found is None:
            with self._lock:  # loops of other threads
                for other in [one for one in self._clients if one.is_closed()]:
                    del self._clients[other]  # it was closed without its generators
                client, self._first = self._make() if self._first is None else self._first, None
                found = client, _until_end(weakref.ref(self), loop, client, self._close)
                self._clients[loop] = found
            await anext(found[1])  # it does not suspend: no other task sees it half done
        return found[0]

    def forget(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop the client of a loop that ends."""
        with self._lock:
            self._clients.pop(loop, None)


async def _until_end(
    owner: weakref.ref[PerLoop[T]],
    loop: asyncio.AbstractEventLoop,
    client: T,
    close: Callable[[T], Awaitable[None]],
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        clients = owner()
        if clients is not None:
            clients.forget(loop)
            del clients
        await close(client)


async def close_connections(client: object) -> None:
    """Close the connections of a LangChain client that shares them with no other client.

    Those of an unknown class are closed when it is collected: other clients may use them, too.
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    for package, paths in _CONNECTIONS.items():
        for path in paths if package in packages else ():
            found: object = client
            for name in path:
                found = getattr(found, name, None)
            close = getattr(found, "close", None)
            if asyncio.iscoroutinefunction(close):
                await close()
                return


async def leave_open(client: object) -> None:
    """Close nothing: the connections are those of who gave them."""


_CONNECTIONS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "langchain_openai": (("root_async_client",), ("async_client", "_client")),  # of chats, of vectors
    "langchain_ollama": (("_async_client",),),
}
