"""Ports of a broker of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from noesium_stream.log.broker import local as broker


def test_a_free_port_is_another_one_than_the_one_that_is_spoken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = iter([4711, 4711, 4712])

    class Probe(socket.socket):
        def bind(self, address: object) -> None:
            """Nothing is bound."""

        def getsockname(self) -> tuple[str, int]:
            return "127.0.0.1", next(offered)

    monkeypatch.setattr(broker.socket, "socket", Probe)
    assert broker.free_port(but=4711) == 4712


def test_what_is_known_of_a_broker_is_replaced_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.json"
    broker._write_whole(path, "before")

    def dies(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        broker._write_whole(path, "after")
    assert path.read_text() == "before"
