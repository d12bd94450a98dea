"""Scopes: who remembers a fact (RFC-0004 §6.1)."""

from __future__ import annotations

import re
from typing import Final

from noesium_stream.errors import MemoryScopeError

SHARED: Final = "shared"
"""What all agents remember together: the merge of what each of them has written (RFC-0004 §6.2)."""
KINDS: Final = ("run", "session", "agent", "user", "tenant")

_ID: Final = re.compile(r"[^\x00-\x1f]{1,200}")


def scope_of(text: str) -> str:
    """Check a scope: `shared`, or `run:`, `session:`, `agent:`, `user:`, `tenant:` and an id.

    Raises:
        MemoryScopeError: it is none.
    """
    kind, colon, name = text.partition(":")
    if text == SHARED or (colon and kind in KINDS and _ID.fullmatch(name)):
        return text
    raise MemoryScopeError(
        f"{text[:200]!r} is not a scope of memory.",
        hint=f"Write {SHARED}, or one of {', '.join(KINDS)} with an id, such as user:ada.",
    )


def allowed_scope(text: str, agent_type: str, run_id: str, session_id: str) -> str:
    """Check a scope that an agent's step names: what is another agent's, run's or session's is not its own.

    Raises:
        MemoryScopeError: it is no scope, or belongs to another one.
    """
    scope = scope_of(text)
    kind, _, name = scope.partition(":")
    own = {"agent": agent_type, "run": run_id, "session": session_id}.get(kind, name)
    if name != own:
        raise MemoryScopeError(
            f"{agent_type} may not use the memory of {scope}: it is another {kind}'s.",
            hint=f"Share it by an event, or write it to {SHARED}.",
        )
    return scope
