"""Which namespace and partitions an opened log has."""

from __future__ import annotations

import pytest

from noesium_stream.log import Topology, open_log


async def test_a_log_has_the_configured_namespace_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOESIUM_NAMESPACE", "other")
    monkeypatch.setenv("NOESIUM_PARTITIONS", "3")
    log = await open_log("memory://")
    assert (log.topology.namespace, log.topology.partitions) == ("other", 3)
    await log.close()


async def test_what_the_address_says_stands_above_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOESIUM_NAMESPACE", "other")
    monkeypatch.setenv("NOESIUM_PARTITIONS", "3")
    log = await open_log("memory://?namespace=mine")
    assert (log.topology.namespace, log.topology.partitions) == ("mine", 3)
    await log.close()


async def test_a_given_topology_stands_above_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOESIUM_NAMESPACE", "other")
    log = await open_log("memory://?namespace=mine", topology=Topology("given", 5))
    assert (log.topology.namespace, log.topology.partitions) == ("given", 5)
    await log.close()
