"""One tool call while it is made, and the events that tell of it (RFC-2003 §7)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noesium_stream.errors import ToolInputError, ToolPermissionError, ToolTimeoutError, brief
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.standard import ToolCompleted, ToolDenied, ToolFailed, ToolInvoked, ToolTimeout
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import Mode
from noesium_stream.tool.redact import redacted

_MAX_REASON = 4_000
_RESULT = "result"


@dataclass(slots=True)
class ToolCall:
    """What is known of a call by now.

    Attributes:
        tool: what is called.
        run_id: the run that calls.
        arguments: what it is called with: as the caller gave them, or as a person has edited them.
        most_ms: the longest time limit that its caller allows; None: what the tool and the arguments say.
        needs: the permissions that these arguments need.
        granted: what the call may do, once it is allowed.
        mode: what the agent may do in the run.
        labels: the provenance of the arguments, by name.
        approval_id: the question whose answer the call consumes.
        always: whether that answer goes for equal calls of the run.
        in_legs: whether a result is the record of a leg (see `legs.py`).
        base: the base of the ids of its effect: the same on each execution of its step.
        goes_on: the id of the call whose first leg has ended, and which is not told to have ended.
        check: judges the arguments in place of the tool's input schema; raises `ToolInputError`.
    """

    tool: AtomicTool
    run_id: str
    arguments: dict[str, Any]
    most_ms: int | None = None
    needs: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    mode: Mode = Mode.ACT
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    approval_id: str | None = None
    always: bool = False
    in_legs: bool = False
    base: str = ""
    goes_on: str | None = None
    check: Callable[[dict[str, Any]], None] | None = None
    _shown: dict[str, Any] = field(default_factory=dict)
    _shown_of: dict[str, Any] | None = None

    def check_input(self) -> None:
        """Check the arguments.

        Raises:
            ToolInputError: they are not valid.
        """
        (self.check or self.tool.check_input)(self.arguments)

    @property
    def shown(self) -> dict[str, Any]:
        """The arguments without their secrets: what goes on the log."""
        if self._shown_of is not self.arguments:
            self._shown, self._shown_of = redacted(self.arguments, self.tool.input_schema), self.arguments
        return self._shown

    @property
    def limit_ms(self) -> int:
        """The time limit of the call, in milliseconds."""
        own_ms = self.tool.limit_ms(self.arguments)
        return own_ms if self.most_ms is None else min(own_ms, self.most_ms)

    @property
    def arguments_hash(self) -> str:
        """SHA-256 of the definition and the shown arguments: what a person approves."""
        content = {"definition": self.tool.definition_hash, "arguments": self.shown}
        return hashlib.sha256(canonical_json(content)).hexdigest()

    # -- events, each a pure function of the call (see `kernel/step/told_effect.py`) -------------------

    def invoked(self, call_id: str) -> DomainEvent:
        """See `Telling.invoked`."""
        tool = self.tool
        return ToolInvoked(
            call_id=call_id,
            tool_id=tool.tool_id,
            tool_name=tool.name,
            source=tool.source.value,
            input=self.shown,
            run_id=self.run_id,
            arguments_hash=self.arguments_hash,
            definition_hash=tool.definition_hash,
            side_effect_class=tool.side_effect_class.value,
            permissions=list(self.needs) or None,
            labels={name: list(found) for name, found in self.labels.items()} or None,
            approval_id=self.approval_id,
            always=self.always or None,
        )

    def denied(self, call_id: str, error: Exception) -> DomainEvent:
        """See `Telling.denied`."""
        kind = "input" if isinstance(error, ToolInputError) else "permission"
        return ToolDenied(
            call_id=call_id,
            tool_id=self.tool.tool_id,
            tool_name=self.tool.name,
            source=self.tool.source.value,
            input=self.shown,
            kind=error.reason if isinstance(error, ToolPermissionError) else kind,
            reason=brief(error, _MAX_REASON),
            run_id=self.run_id,
            side_effect_class=self.tool.side_effect_class.value,
            permissions=list(self.needs) or None,
            labels={name: list(found) for name, found in self.labels.items()} or None,
        )

    def completed(self, call_id: str, result: Any, duration_ms: int) -> DomainEvent | None:
        """See `Telling.completed`."""
        if self.in_legs:
            if _RESULT not in result:
                self.goes_on = call_id
                return None
            result = result[_RESULT]
        return ToolCompleted(
            call_id=call_id,
            tool_id=self.tool.tool_id,
            tool_name=self.tool.name,
            output=result,
            duration_ms=duration_ms,
            run_id=self.run_id,
            labels=sorted({*self.tool.labels, *(one for found in self.labels.values() for one in found)})
            or None,
        )

    def failed(self, call_id: str, error_type: str, message: str, duration_ms: int) -> DomainEvent:
        """See `Telling.failed`."""
        return ToolFailed(
            call_id=call_id,
            tool_id=self.tool.tool_id,
            tool_name=self.tool.name,
            error_type=error_type,
            error=message,
            duration_ms=duration_ms,
            run_id=self.run_id,
        )

    def timed_out(self, call_id: str) -> DomainEvent:
        """See `Telling.timed_out`."""
        return ToolTimeout(
            call_id=call_id,
            tool_id=self.tool.tool_id,
            tool_name=self.tool.name,
            timeout_ms=self.limit_ms,
            run_id=self.run_id,
        )

    def limit_error(self) -> Exception:
        """See `Telling.limit_error`."""
        return ToolTimeoutError(
            f"The tool {self.tool.name} had not ended after {self.limit_ms / 1000:g} s.",
            hint="Give it more with `timeout`, if it is meant to take so long.",
        )
