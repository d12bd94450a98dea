"""Who is asked depends on what is declared and on nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.capabilities.capability_set import CapabilitySet
from noesium_stream.capabilities.fold import CapabilityProjection
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.resolution import DeterministicResolver, Wanted
from noesium_stream.capabilities.version import in_range
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import CapabilityError, CapabilityNotFoundError, ConfigError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import (
    Capability,
    CapabilityDeprecated,
    CapabilityRegistered,
    CapabilityType,
)
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


def spread(entries: Sequence[tuple[AgentRef, Capability]], runs: int = 3_000) -> Counter[str]:
    """How many of so many runs get each agent."""
    clock, resolver = VirtualClock(), DeterministicResolver()
    events = [
        CapabilityRegistered(agent_id=agent.agent_id, agent_type=agent.agent_type, capability=one)
        for agent, one in entries
    ]
    state = CapabilityProjection().fold(
        root_event(event, agent, clock) for event, (agent, _) in zip(events, entries, strict=True)
    )
    chosen = (resolver.select(state, Wanted("corpus.search", run_id=f"run-{n}")) for n in range(runs))
    return Counter(one.agent_id for one in chosen if one is not None)


def test_runs_are_spread_in_proportion_to_the_weights() -> None:
    found = spread([(A, capability(weight=1)), (B, capability(weight=3))])
    assert sum(found.values()) == 3_000
    assert 0.2 < found["a"] / 3_000 < 0.3
    assert found == spread([(A, capability(weight=1)), (B, capability(weight=3))])


def test_a_weight_of_none_is_taken_only_where_there_is_no_other() -> None:
    assert spread([(A, capability(weight=0)), (B, capability(weight=1))], 200) == {"b": 200}
    assert spread([(A, capability(weight=0))], 200) == {"a": 200}
    both = spread([(A, capability(weight=0)), (B, capability(weight=0))], 200)
    assert set(both) == {"a", "b"}


def test_a_lower_priority_is_taken_only_where_there_is_no_higher_one() -> None:
    assert spread([(A, capability(weight=9)), (B, capability(weight=1, priority=1))], 200) == {"b": 200}


async def test_who_is_passed_over_and_why_is_said_of_each_offer() -> None:
    log = await open_log("memory://")
    registry = CapabilityRegistry(log)
    await registry.register(A, capability("1.0.0", required_roles=["auditor"]))
    await registry.register(A, capability("1.1.0", required_scopes=["read"]))
    await registry.register(A, capability("1.2.0", capability_type=CapabilityType.REMOTE_TOOL))
    await registry.register(A, capability("2.0.0"))
    await registry.register(A, capability("1.3.0"))
    await registry.deprecate(A, "corpus.search", "1.3.0", "wrong results")
    await registry.register(B, capability("1.0.0", priority=2))
    await registry.register(B, capability("1.4.0", priority=-1))
    found = await registry.resolve(
        "corpus.search",
        "^1",
        roles=[],
        scopes=["write"],
        capability_type=CapabilityType.SUBAGENT,
        explain=True,
    )
    assert found.position == 8
    assert [(f"{one.entry.agent_id} {one.entry.version}", one.reason) for one in found.candidates] == [
        ("b 1.0.0", "taken: the only one of the highest priority 2"),
        ("b 1.4.0", "its priority -1 is below 2"),
        ("a 1.0.0", "it requires the role auditor, which the caller does not have"),
        ("a 1.1.0", "it requires the scope read, which the caller does not have"),
        ("a 1.2.0", "its type is RemoteTool, not Subagent"),
        ("a 2.0.0", "the version 2.0.0 is not in ^1"),
        ("a 1.3.0", "deprecated: wrong results"),
    ]
    left = await registry.resolve("corpus.search", "^1", without=["b"], roles=["auditor"], explain=True)
    assert left.chosen is not None
    assert (left.chosen.agent_id, left.chosen.version) == ("a", "1.0.0")
    with pytest.raises(CapabilityNotFoundError) as caught:
        await registry.resolve("corpus.search", "^2", without=["a"])
    assert "corpus.search 2.0.0 of a: its agent is to be left out" in caught.value.considered
    await log.close()


async def test_a_version_keeps_its_metadata_also_after_it_was_deprecated() -> None:
    log = await open_log("memory://")
    registry, clock = CapabilityRegistry(log), VirtualClock()
    await registry.register(A, capability(tags=["first"]))
    await registry.deprecate(A, "corpus.search", "1.0.0", "wrong results")
    with pytest.raises(CapabilityError, match="other metadata"):
        await registry.register(A, capability(tags=["second"]))
    forced = CapabilityRegistered(agent_id="a", agent_type="worker-a", capability=capability(tags=["second"]))
    await log.append([root_event(forced, A, clock)])
    assert (await registry.resolve("corpus.search", explain=True)).chosen is None
    await registry.register(A, capability(tags=["first"]))
    assert (await registry.resolve("corpus.search")).capability.tags == ["first"]
    await log.close()


async def test_an_update_names_the_version_before_and_both_are_live() -> None:
    log = await open_log("memory://")
    registry = CapabilityRegistry(log)
    with pytest.raises(CapabilityError, match=r"a offers no corpus\.search below 1\.1\.0"):
        await registry.update(A, capability("1.1.0"))
    await registry.register(A, capability("1.0.0"))
    await registry.update(A, capability("1.10.0"))
    await registry.update(A, capability("1.11.0"))
    await registry.update(A, capability("1.11.0"))
    topic = log.topology.registry
    records = [record.envelope async for record in log.read(topic, {}, until=await log.end(topic))]
    assert [one.payload.get("previous_version") for one in records] == [None, "1.0.0", "1.10.0"]
    assert len(await registry.find("corpus.search", "^1")) == 3
    await log.close()


def typed(version: str, required: list[str], agent: AgentRef = A) -> Capability:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": required}
    return Capability(id="corpus.search", version=version, input_schema=schema, output_schema={})


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (["1.0.0"], "1.1.0", True),
        (["1.0.0"], "2.0.0", False),
        (["1.0.0"], "1.1.0-rc.1", False),
        (["1.0.0-rc.1"], "1.0.0", False),
        (["0.1.0"], "0.1.1", True),
        (["0.1.0"], "0.2.0", False),
        (["0.0.1"], "0.0.2", False),
        (["1.0.0", "2.0.0"], "2.1.0", True),
    ],
)
async def test_a_version_that_breaks_callers_needs_a_new_major(
    before: list[str], after: str, refused: bool
) -> None:
    log = await open_log("memory://")
    registry = CapabilityRegistry(log)
    for version in before:
        await registry.register(A, typed(version, []))
    await registry.register(B, typed(after, ["q"]))  # another agent has other callers
    if refused:
        with pytest.raises(CapabilityError) as caught:
            await registry.register(A, typed(after, ["q"]))
        old = before[-1]
        wanted = f"corpus.search {after} breaks callers of {old} of a: input.q is required now."
        assert caught.value.message == wanted
        assert caught.value.hint is not None
        assert "Raise the version to" in caught.value.hint
        await registry.deprecate(A, "corpus.search", old, "nobody calls it")
    await registry.register(A, typed(after, ["q"]))
    assert {one.agent_id for one in await registry.find("corpus.search", after)} == {"a", "b"}
    await log.close()


async def test_only_an_offer_can_be_deprecated_and_only_once() -> None:
    log = await open_log("memory://")
    registry = CapabilityRegistry(log)
    await registry.register(A, capability())
    for agent, version in ((B, "1.0.0"), (A, "2.0.0")):
        with pytest.raises(CapabilityError, match="does not offer"):
            await registry.deprecate(agent, "corpus.search", version, "old")
    await registry.deprecate(A, "corpus.search", "1.0.0", "old")
    await registry.deprecate(A, "corpus.search", "1.0.0", "old")
    assert await log.last_offset(log.topology.registry) == 2
    await log.close()


def test_a_set_has_each_version_once_and_finds_the_highest() -> None:
    offered = CapabilitySet([capability("1.0.0"), capability("1.10.0"), capability("1.9.0")])
    assert (len(offered), offered.ids) == (3, ("corpus.search",))
    assert [one.version for one in offered] == ["1.0.0", "1.10.0", "1.9.0"]
    assert offered.get("corpus.search") == capability("1.10.0")
    assert offered.get("corpus.search", "<1.10") == capability("1.9.0")
    assert (offered.get("corpus.search", "^2"), offered.get("other")) == (None, None)
    assert "corpus.search" in offered
    assert capability("1.9.0") in offered
    with pytest.raises(ConfigError, match=r"corpus\.search 1\.0\.0 is offered twice"):
        CapabilitySet([capability(), capability(tags=["x"])])
    with pytest.raises(
        ConfigError, match=r"The capability corpus\.search: 'latest' is not a semantic version"
    ):
        CapabilitySet([capability("latest")])


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
