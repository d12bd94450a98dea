"""What is decided about a call before it begins: it may be made, a person is asked, or it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeniedKind = Literal["input", "permission", "mode", "rule", "approval", "definition", "provenance"]
"""What refuses a call: see `tool.denied`."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A call may be made.

    Attributes:
        granted: what it may do while it runs: the walls of a sandbox are built from these.
        rule: what allows it, for people.
    """

    granted: tuple[str, ...]
    rule: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A call may be made when people have approved it.

    Attributes:
        reason: why they are asked, for people.
        approvers: names and `role:NAME` who may approve; empty: whoever may answer questions of the agent.
        minimum: how many of them have to.
        granted: what the call may do then.
        rule: what asks, for people.
    """

    reason: str
    approvers: tuple[str, ...]
    minimum: int
    granted: tuple[str, ...]
    rule: str


@dataclass(frozen=True, slots=True)
class Denied:
    """A call may not be made.

    Attributes:
        kind: what refuses it.
        reason: one sentence, without an argument's value beyond names, paths and hosts.
        hint: what a person could change.
        rule: what refuses it, for people.
    """

    kind: DeniedKind
    reason: str
    hint: str
    rule: str = ""


Verdict = Allowed | Ask | Denied
