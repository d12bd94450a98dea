"""Ports of the loopback address: one for a server of a test, and one at which nobody answers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from noesium_stream.log.broker import local

_PROCESSES = 8
_given: set[int] = set()


def free_port() -> int:
    """A free port that no other test of this run is given, in any of its processes."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = local.free_port()
        if port not in _given and port % _PROCESSES == process % _PROCESSES:
            _given.add(port)
            return port


@contextmanager
def dead_port() -> Iterator[int]:
    """A port at which nobody answers; no other program can listen there meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
