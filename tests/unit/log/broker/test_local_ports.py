"""Ports of a broker of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from noesium_stream.log.broker import local as broker


def test_a_free_port_is_another_one_than_the_one_that_is_spoken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    offered, first = iter([11, 11, 12, 13]), broker._PORTS.start
    monkeypatch.setattr(broker.secrets, "randbelow", lambda _: next(offered))
    monkeypatch.setattr(broker, "port_is_free", lambda port: port != first + 12)
    assert broker.free_port(but=first + 11) == first + 13


def test_no_outgoing_connection_can_take_a_free_port() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given.read_text().split()[0]) if given.exists() else 32_768
    assert {broker.free_port() < first for _ in range(50)} == {True}


def test_a_port_where_a_program_listens_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not broker.port_is_free(taken.getsockname()[1])


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
