"""What `noesium run` says of questions to people."""

from __future__ import annotations

from typing import Any

import click

from noesium_stream.cli.progress import progress_line
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.standard import ApprovalAnswered, ApprovalRequested
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
        "  refund     asks: Refund 120.50?",
        f"    noesium approve {RUN} 780e5dae-5878  (or reject)",
    ]
    assert '{"amount": 3}' in asked({"amount": 3})


def test_an_answer_is_shown_with_who_gave_it() -> None:
    answer = ApprovalAnswered(
        run_id=RUN, approval_id="780e5dae", fingerprint="f", approved=False, answered_by="ada"
    )
    assert said(answer) == "  ada rejected"
