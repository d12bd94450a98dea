"""Refunds: small ones at once, others when a person agrees; a payment is taken back if the letter fails.

    noesium run agents.examples.refund:graph --input '{"customer": "ada", "amount": 20}'

Above 50 it asks. Answer in another terminal: `noesium approvals`, then `noesium approve RUN --as NAME`.
"""

from __future__ import annotations

from typing import TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream import SideEffectClass, current_step, kernel_compensation

LIMIT = 50


class Refund(TypedDict, total=False):
    """A refund: who gets how much, and what has become of it."""

    customer: str
    amount: int
    payment: str
    letter: str


def pay(customer: str, amount: int, idempotency_key: str) -> str:
    """Stand-in for the bank; it would drop a second call under the same key."""
    return f"{amount} to {customer} ({idempotency_key[:8]})"


@kernel_compensation()
def take_back(payment: str, customer: str, amount: int) -> str:
    """Stand-in for the bank, too: gets what `pay` returned, then what it was given."""
    return f"taken back: {payment}"


def post(customer: str, payment: str) -> str:
    """Stand-in for a printer."""
    return f"Dear {customer}, you have been paid {payment}."


async def decide(state: Refund) -> Refund:
    """Ask a person about a large amount, and pay."""
    step = current_step()
    customer, amount = state["customer"], state["amount"]
    if amount > LIMIT:
        answer = await step.interrupt(f"Refund {amount} to {customer}?")
        if not answer.approved:
            return {"payment": "", "letter": f"refused by {answer.answered_by}"}
    safe = SideEffectClass.IDEMPOTENT  # the bank knows the key: a crash in between may repeat the call
    return {
        "payment": await step.effect("pay", pay, customer, amount, effect_class=safe, compensate=take_back)
    }


async def write(state: Refund) -> Refund:
    """Write a letter about a payment."""
    if not state["payment"]:
        return {}
    return {"letter": await current_step().effect("post", post, state["customer"], state["payment"])}


builder = StateGraph(Refund)
builder.add_node("decide", decide)
builder.add_node("write", write)
builder.add_edge(START, "decide")
builder.add_edge("decide", "write")
graph = builder.compile()
