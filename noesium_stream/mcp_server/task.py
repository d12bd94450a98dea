"""MCP tasks and results of tools: runs as a fold over their journals, as MCP shows them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from mcp_types import INTERNAL_ERROR, CallToolResult, ContentBlock, TextContent
from pydantic import TypeAdapter, ValidationError

from noesium_stream import errors
from noesium_stream.event.rules.agent_calls import input_of
from noesium_stream.mcp_server.questions import input_requests
from noesium_stream.serving.run_fold import Made, RunFold, Status

METADATA: Final = "mcp"
"""Field of a command's metadata that says what was called."""
BLOCKS: Final = "blocks"
"""The value of `content` in that field: the result is a list of MCP content blocks."""
POLL_MS: Final = 500
"""How often a client should look at a task, in milliseconds."""
_CONTENT: Final[TypeAdapter[list[ContentBlock]]] = TypeAdapter(list[ContentBlock])
_SHOWN: Final = {
    Status.SUBMITTED: "working",
    Status.WORKING: "working",
    Status.INPUT_REQUIRED: "input_required",
    Status.COMPLETED: "completed",
    Status.FAILED: "completed",
    Status.CANCELLED: "cancelled",
    Status.REJECTED: "failed",
}
_OF_AGENTS: Final = ("NodeExecutionError", "ApprovalExpiredError")
_OF_PLATFORM: Final = frozenset(
    name
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, errors.KernelError) and name not in _OF_AGENTS
)
"""Classes of errors with which a run ends although its agent did not fail."""


@dataclass(slots=True)
class TaskFold(RunFold[str]):
    """The task of one run; see `RunFold`. A change is a short text about it."""

    channel: ClassVar[str] = METADATA

    def made(self, what: Made) -> str:
        """See `RunFold`."""
        node = self.about.get("node")
        return f"{node} has ended" if isinstance(node, str) else self.status.value.replace("_", " ")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call."""
        return {} if self.command is None else dict(input_of(self.command.payload))

    def task(self, *, asks: bool) -> dict[str, Any]:
        """Return the task as `tools/call` gives it.

        Args:
            asks: whether the client can ask its user; if not, a task that asks is one that works.
        """
        status = self._status(asks=asks)
        created_ms = self.changed_ms if self.command is None else self.command.timestamp_ms
        text = self.text or None
        return {
            "taskId": self.task_id,
            "status": status,
            **({} if text is None else {"statusMessage": text}),
            "createdAt": _timestamp(created_ms),
            "lastUpdatedAt": _timestamp(self.changed_ms),
            "ttlMs": None,
            "pollIntervalMs": POLL_MS,
        }

    def details(self, *, asks: bool) -> dict[str, Any]:
        """Return the task as `tasks/get` gives it: with what it asks, its result or its error."""
        task = self.task(asks=asks)
        if task["status"] == "input_required":
            task["inputRequests"] = input_requests(self.questions)
        elif task["status"] == "completed":
            result = self.call_result(modern=True)
            task["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        elif task["status"] == "failed":
            task["error"] = {"code": INTERNAL_ERROR, "message": self.text or "The run has failed."}
        return task

    def _status(self, *, asks: bool) -> str:
        if self.status == Status.INPUT_REQUIRED and not asks:
            return "working"
        if self.status == Status.FAILED and (self.error_type is None or self.error_type in _OF_PLATFORM):
            return "failed"
        return _SHOWN[self.status]

    def call_result(self, *, modern: bool) -> CallToolResult:
        """Return the result of the call whose run has ended.

        Args:
            modern: whether structured content may be any JSON value, and not objects alone.
        """
        if not self.has_result:
            return error_result(self.text or f"The run has ended: {self.status.value}.")
        value = self.result
        if self.said("content") == BLOCKS:
            return _blocks(value)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        structured = value if modern or isinstance(value, dict) else None
        return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


def error_result(text: str) -> CallToolResult:
    """Return the result of a call that has failed, for the model to read."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _blocks(value: Any) -> CallToolResult:
    try:
        return CallToolResult(content=_CONTENT.validate_python(value, by_name=False))
    except ValidationError:
        return error_result("The run's result is no list of MCP content blocks.")


def _timestamp(ms: int) -> str:
    moment = datetime.fromtimestamp(max(0, ms) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
