"""Who is asked depends on what is declared and on nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.version import in_range
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import CapabilityError, CapabilityNotFoundError, ConfigError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import Capability, CapabilityDeprecated, CapabilityRegistered
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log import open_log

A, B = AgentRef("a", "worker-a"), AgentRef("b", "worker-b")


def capability(version: str = "1.0.0", **more: object) -> Capability:
    return Capability(id="corpus.search", version=version, input_schema={}, output_schema={}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.0.0", None, True),
        ("1.0.0", "*", True),
        ("1.4.2", "^1", True),
        ("1.4.2", "^1.4", True),
        ("1.3.9", "^1.4", False),
        ("2.0.0", "^1", False),
        ("1.4.9", "~1.4", True),
        ("1.5.0", "~1.4", False),
        ("1.5.0", ">=1.2 <2", True),
        ("2.0.0", ">=1.2,<2", False),
        ("1.2.3", "1.2.3", True),
        ("1.2.4", "1.2.3", False),
        ("1.2.4", "1.2", True),
        ("3.1.0", "^1 || ^3", True),
        ("2.1.0", "^1 || ^3", False),
        ("1.4.0", "1.2 - 1.4", True),
        ("1.4.9", "1.x", True),
        ("0.2.9", "^0.2", True),
        ("0.3.0", "^0.2", False),
        ("1.9.0", ">1", False),
        ("2.0.0-rc.1", "^1", False),
        ("1.2.3-rc.1", "^1.2.3-beta", True),
        ("1.5.0", "==1.5.0", True),
    ],
)
def test_a_higher_minor_fits_and_another_major_does_not(version: str, wanted: str | None, fits: bool) -> None:
    assert in_range(version, wanted) is fits


def test_a_range_that_cannot_be_read_says_so() -> None:
    with pytest.raises(ConfigError, match="'newest' is not a version range"):
        in_range("1.0.0", "newest")


@pytest.mark.parametrize(
    "hostile",
    ["9" * 5_000, "1" + " " * 10_000 + "2", "=" * 10_000, "^1.2.3" * 100, "^١", "1.2.3-" + "a." * 999],
)
def test_a_hostile_range_or_version_is_refused_before_it_is_parsed(hostile: str) -> None:
    with pytest.raises(ConfigError, match="is not a version range"):
        in_range("1.0.0", hostile)
    with pytest.raises(ConfigError, match="is not a semantic version"):
        in_range(hostile, "^1")


@given(st.text(alphabet="0123456789.xX*^~<>=|- \t+va,", max_size=256))
def test_a_range_is_read_or_refused_with_a_typed_error(wanted: str) -> None:
    with suppress(ConfigError):
        assert in_range("1.2.3", wanted) in (True, False)


async def test_priority_then_weight_then_registration_decide() -> None:
    log = await open_log("memory://")
    registry = CapabilityRegistry(log)
    await registry.register(A, capability())
    await registry.register(B, capability())
    assert (await registry.resolve("corpus.search")).agent_id == "a"
    await registry.register(B, capability("1.1.0", weight=5))
    assert (await registry.resolve("corpus.search", "^1")).agent_id == "b"
    await registry.register(A, capability("1.0.1", priority=1))
    assert (await registry.resolve("corpus.search", "^1")).agent_id == "a"
    await log.close()


async def test_a_deprecated_version_is_not_chosen_until_it_is_registered_again() -> None:
    log = await open_log("memory://")
    registry = CapabilityRegistry(log)
    await registry.register(A, capability())
    await registry.deprecate(A, "corpus.search", "1.0.0", "wrong results")
    with pytest.raises(CapabilityNotFoundError, match=r"No agent offers corpus\.search; on offer: nothing"):
        await registry.resolve("corpus.search")
    await registry.register(A, capability())
    assert (await registry.resolve("corpus.search")).agent_id == "a"
    await log.close()


async def test_registering_twice_writes_once_and_a_changed_one_is_refused() -> None:
    log = await open_log("memory://")
    registry = CapabilityRegistry(log)
    await registry.register(A, capability())
    await registry.register(A, capability())
    assert await log.last_offset(log.topology.registry) == 1
    with pytest.raises(CapabilityError, match="other metadata"):
        await registry.register(A, capability(tags=["new"]))
    await log.close()


async def test_an_agent_cannot_change_another_s_entry() -> None:
    log = await open_log("memory://")
    registry = CapabilityRegistry(log)
    await registry.register(A, capability())
    foreign = CapabilityDeprecated(
        agent_id="a", capability_id="corpus.search", version="1.0.0", reason="envy"
    )
    clock = VirtualClock()
    await log.append([foreign.to_envelope(B, TraceContext(clock.token(16), clock.token(8)), clock=clock)])
    assert (await registry.resolve("corpus.search")).agent_id == "a"
    await log.close()


async def test_two_views_of_one_registry_are_equal_wherever_they_started() -> None:
    log = await open_log("memory://")
    early = CapabilityRegistry(log)
    for version in ("1.0.0", "1.1.0", "2.0.0"):
        await early.register(A, capability(version, tags=["search"]))
        await early.register(B, capability(version))
    late = CapabilityRegistry(log)
    assert await late.refresh() == await early.refresh()
    assert [entry.agent_id for entry in await late.find_by_tag("search")] == ["a", "a", "a"]
    await log.close()


async def test_what_the_policy_does_not_allow_is_not_on_offer() -> None:
    log = await open_log("memory://")
    policy = Policy.model_validate({"allow": [{"who": ["agent:worker-a"], "may": ["register"]}]})
    registry = CapabilityRegistry(log, clock=VirtualClock(), policy=policy)
    await registry.register(B, capability("2.0.0"))
    await registry.register(A, capability())
    assert [entry.agent_id for entry in await registry.find("corpus.search")] == ["a"]
    [reason] = registry.refused.values()
    assert "'agent:worker-b' may not register capabilities" in reason


async def test_nobody_offers_a_capability_of_another_type_of_agent() -> None:
    log = await open_log("memory://")
    clock = VirtualClock()
    forged = CapabilityRegistered(agent_id="b", agent_type="worker-a", capability=capability())
    await log.append([root_event(forged, B, clock)])
    assert await CapabilityRegistry(log, clock=clock).find("corpus.search") == []
