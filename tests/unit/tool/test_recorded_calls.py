"""A recorded run judged by a policy: the same rules as before a call, and labels folded anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from noesium_stream.event.trust.policy import Policy
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode
from noesium_stream.tool.recorded_calls import recorded_tool_calls
from noesium_stream.tool.verdict import Allowed, Ask, Denied
from tests.unit.tool.test_executor import agent_with, handle


def policy(**rules: Any) -> Policy:
    return Policy.model_validate({"agents": {"clerk": rules}})


async def test_each_call_is_judged_by_the_given_policy() -> None:
    async with Rehearsal(agent_with(handle)) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.result()
        events = await run.history()
    calls = recorded_tool_calls(events, policy(grant=["pay:order:7"], mode=Mode.AUTO))
    assert [(one.tool_name, one.outcome) for one in calls] == [
        ("look_up", "completed"),
        ("refund", "completed"),
    ]
    assert all(isinstance(one.verdict, Allowed) for one in calls)
    _, refund = recorded_tool_calls(events, policy(grant=["pay:order:8"], mode=Mode.AUTO))
    assert isinstance(refund.verdict, Denied)
    assert refund.would_be_refused
    _, refund = recorded_tool_calls(events, policy(grant=["pay:order"], mode=Mode.ACT))
    assert isinstance(refund.verdict, Ask)
    assert all(one.verdict is None for one in recorded_tool_calls(events))


async def test_a_refused_call_may_be_allowed_now() -> None:
    async with Rehearsal(agent_with(handle, permissions=())) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.wait_for("run.failed")
        events = await run.history()
    refund = recorded_tool_calls(events, policy(grant=["pay:order"], mode=Mode.AUTO))[-1]
    assert refund.outcome == "denied"
    assert isinstance(refund.verdict, Allowed)


async def test_where_the_policy_grants_nothing_of_its_own_a_call_has_what_it_had() -> None:
    asks = {"approve": [{"tool": "refund"}]}
    async with Rehearsal(agent_with(handle)) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.result()
        made = recorded_tool_calls(await run.history(), policy(**asks))[-1]
    async with Rehearsal(agent_with(handle, permissions=())) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.wait_for("run.failed")
        refused = recorded_tool_calls(await run.history(), policy(**asks))[-1]
    assert (made.says, made.would_be_refused) == ("asks", False)
    assert (refused.says, refused.would_be_refused) == ("refuses", False)


async def test_a_record_that_is_not_valid_is_refused() -> None:
    async with Rehearsal(agent_with(handle)) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.result()
        events = await run.history()
    for name, value in (("side_effect_class", "none"), ("tool_name", "no name"), ("tool_id", "x:refund")):
        for event in events:
            if event.event_type == "tool.invoked":
                changed = SimpleNamespace(
                    event_id=event.event_id,
                    event_type=event.event_type,
                    causation_id=event.causation_id,
                    producer=event.producer,
                    payload={**event.payload, name: value},
                )
                (call,) = recorded_tool_calls([cast(Any, changed)], policy(grant=["pay:order"]))
                assert call.says == "refuses", name
