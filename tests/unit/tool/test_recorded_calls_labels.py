"""A recorded run under another rule: the labels of its calls, and what a policy says of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.event import EventEnvelope
from noesium_stream.event.rules.provenance import Provenance
from noesium_stream.event.trust.policy import Policy
from noesium_stream.testing import Rehearsal
from noesium_stream.tool.recorded_calls import recorded_tool_calls
from tests.unit.tool.test_gate import as_told, clerk, obey

ALL = {"who": ["*"], "may": ["*"]}
NEVER = Policy.model_validate(
    {"allow": [ALL], "agents": {"clerk": {"never": [{"tool": "send", "argument_from": ["web"]}]}}}
)
LABELS = st.sampled_from(["web", "document", "mcp:crm"])


async def recorded(last: Any) -> list[EventEnvelope]:
    kind = clerk(last)
    made = kind.__init__

    def without_policy(self: Any, options: Any, context: Any) -> None:
        made(self, options, context)
        object.__setattr__(self.context, "policy", None)

    kind.__init__ = without_policy
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"to": "ada@example.com"})
        await run.result()
        return list(await run.history())


async def test_a_rule_refuses_the_call_of_a_run_that_was_recorded_without_it() -> None:
    fetch, send = recorded_tool_calls(await recorded(obey), NEVER)
    assert (fetch.labels, fetch.result_labels, fetch.says) == ({}, ("web",), "allows")
    assert (send.labels, send.says, send.would_be_refused) == ({"to": ("web",)}, "refuses", True)


async def test_what_a_person_has_said_has_no_label() -> None:
    _, send = recorded_tool_calls(await recorded(as_told), NEVER)
    assert send.labels == {}
    assert not send.would_be_refused


async def test_without_a_policy_nothing_is_judged() -> None:
    events = await recorded(obey)
    assert [call.verdict for call in recorded_tool_calls(events)] == [None, None]
    assert recorded_tool_calls(events) == recorded_tool_calls(events)


def event(event_id: str, event_type: str, payload: dict[str, Any], cause: str | None = None) -> Any:
    return SimpleNamespace(event_id=event_id, event_type=event_type, payload=payload, causation_id=cause)


@given(st.lists(st.lists(LABELS, max_size=2), max_size=8))
def test_labels_never_shrink_and_all_that_nobody_has_said_has_them(results: list[list[str]]) -> None:
    run, again = Provenance(), Provenance()
    before: frozenset[str] = frozenset()
    seen: set[str] = set()
    asked = {"run_id": "r", "agent_type": "clerk", "input": {"to": "ada"}}
    events = [event("c", "run.requested", asked)]
    for number, labels in enumerate(results):
        at = f"e{number}"
        events += [
            event(at, "kernel.node.entered", {"step": number, "task_path": f"{number}"}),
            event(f"i{number}", "tool.invoked", {"call_id": at}, at),
            event(f"d{number}", "tool.completed", {"call_id": at, "labels": labels}, f"i{number}"),
        ]
    for one in events:
        if one.event_type == "tool.invoked":
            found = run.of_arguments(one.causation_id, {"to": "ada", "text": "mallory"})
            assert found == ({"text": tuple(sorted(seen))} if seen else {})
        run.apply(one)
        seen |= set(one.payload.get("labels", ()))
        assert run.everywhere >= before
        before = run.everywhere
    for one in events:
        again.apply(one)
    assert again == run
