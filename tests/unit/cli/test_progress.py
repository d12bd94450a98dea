"""What `noesium run` says of questions to people, and of tools."""

from __future__ import annotations

from typing import Any

import click

from noesium_stream.cli.progress import progress_line
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import (
    ApprovalAnswered,
    ApprovalRequested,
    ReplyTo,
    SignalAwaited,
    ToolCompleted,
    ToolInvocationCompleted,
    ToolInvocationRequested,
)
from tests.support.envelopes import envelope

RUN = "01a2009b-1d4b-7316-ad32-5d1ed0b8c685"


def said(event: DomainEvent) -> str:
    line = progress_line(envelope(event_type=event.event_type(), payload=event.payload()), RUN)
    assert line is not None
    return click.unstyle(line)


def asked(question: Any) -> str:
    return said(
        ApprovalRequested(
            run_id=RUN, approval_id="780e5dae-5878-8a10", node="refund", question=question, fingerprint="f"
        )
    )


def test_a_question_is_shown_with_the_command_that_answers_it() -> None:
    assert asked("Refund 120.50?").splitlines() == [
        "  refund     asks: Refund 120.50? (approve or reject)",
        f"    noesium approve {RUN} 780e5dae-5878",
    ]
    assert '{"amount": 3}' in asked({"amount": 3})


def test_a_wait_for_a_signal_is_shown_with_the_command_that_sends_it() -> None:
    awaited = {"run_id": RUN, "wait_id": "w1", "node": "send", "missing": 1}
    assert said(SignalAwaited(**awaited, name="verdict")).splitlines() == [
        "  send       waits for the signal verdict",
        f"    noesium signal {RUN} verdict [VALUE]",
    ]
    assert said(SignalAwaited(**awaited, name="a\nb;c")).endswith(f"noesium signal {RUN} 'a b;c' [VALUE]")


def test_an_answer_is_shown_with_who_gave_it() -> None:
    answer = ApprovalAnswered(
        run_id=RUN, approval_id="780e5dae", fingerprint="f", approved=False, answered_by="ada"
    )
    assert said(answer) == "  ada rejected"


def test_a_tool_of_another_agent_is_shown_with_what_was_asked_and_what_became_of_it() -> None:
    both = {"call_id": "c1", "toolkit_name": "shop", "tool_name": "price"}
    shared = {**both, "run_id": "c1", "capability_id": "tool.shop.price", "caller_run_id": RUN}
    reply_to = ReplyTo(agent_type="buyer", run_id=RUN, call_id="c1")
    asked = ToolInvocationRequested(
        **shared, target_agent_type="shop", arguments={"item": "oil"}, reply_to=reply_to
    )
    assert said(asked) == "  → tool.shop.price (shop)  oil"
    assert (
        said(ToolInvocationCompleted(**shared, error="sold out")) == "  ← tool.shop.price  failed: sold out"
    )


def test_a_question_that_is_cut_is_shown_with_the_command_that_shows_all_of_it() -> None:
    line, *commands = asked("Is this right? " * 10).splitlines()
    assert "…" in line
    assert commands == [f"    noesium approvals {RUN}", f"    noesium approve {RUN} 780e5dae-5878"]


def test_a_call_of_a_tool_names_the_tool() -> None:
    done = ToolCompleted(call_id="c", tool_id="fetch", tool_name="fetch\n", duration_ms=45)
    assert said(done) == "  tool.completed  fetch  45 ms"
