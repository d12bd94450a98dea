"""How a program is spoken to: a request becomes a line, and lines become an answer; what is read is hostile.

A `Dialogue` belongs to one life of a process. An error of its `hear` means that the process does not say what
it was asked for: it has to end, because nothing that it prints afterwards can be believed. The message of
such an error is what the program did: `printed …`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import orjson

from noesium_stream.errors import EventValidationError, SubagentProtocolError
from noesium_stream.escapes import escaped
from noesium_stream.event.payload.value import parse_json
from noesium_stream.subagent.lifecycle import Answer, Request

MAX_STRAYS: Final = 100
"""Most repeated answers in a row that are dropped."""
_REMEMBERED: Final = 100
_SHOWN: Final = 200
MAX_ERROR: Final = 1_000
"""Most characters of a program's own error."""


class Dialogue(ABC):
    """The lines of one process, from its start to its end."""

    @abstractmethod
    def ask(self, request: Request) -> bytes:
        """Return what is written for a request.

        Raises:
            CapabilityError: it cannot be written down; nothing has changed.
        """

    @abstractmethod
    def hear(self, line: bytes) -> Answer | None:
        """Take a line without its end; return the answer if it is complete.

        Raises:
            SubagentProtocolError: it is none that this request can have.
        """


class Protocol(ABC):
    """What programs of one kind speak."""

    @abstractmethod
    def dialogue(self) -> Dialogue:
        """Begin the dialogue with a new process."""


@dataclass(frozen=True, slots=True)
class JsonLines(Protocol):
    """One JSON object a line, in both directions (RFC-0005).

    The program reads `{"request_id": …, "task": …, "payload": {…}, "context": {…}}` and answers with
    `{"request_id": …, "result": …}`, or `{"request_id": …, "error": "TEXT"}`. `task` is the capability,
    `payload` its input. The same `request_id` comes again only for the same request.
    """

    def dialogue(self) -> Dialogue:
        """See `Protocol.dialogue`."""
        return _JsonDialogue()


class _JsonDialogue(Dialogue):
    def __init__(self) -> None:
        self._open: str | None = None
        self._answered: deque[str] = deque(maxlen=_REMEMBERED)
        self._strays = 0

    def ask(self, request: Request) -> bytes:
        """See `Dialogue.ask`."""
        self._open = request.request_id
        return orjson.dumps(request._asdict()) + b"\n"

    def hear(self, line: bytes) -> Answer | None:
        """See `Dialogue.hear`; an answer that is repeated is dropped."""
        said = parsed(line)
        if not isinstance(said, dict) or not isinstance(said.get("request_id"), str):
            raise SubagentProtocolError(f"printed a line without a request_id: {shown(line)}")
        request_id = said["request_id"]
        if request_id == self._open:
            return self._answer(said, line)
        self._strays += 1
        if request_id not in self._answered:
            raise SubagentProtocolError(f"answered a request that it was not asked: {shown(line)}")
        if self._strays > MAX_STRAYS:
            raise SubagentProtocolError(f"repeated an answer {self._strays} times: {shown(line)}")
        return None

    def _answer(self, said: dict[str, Any], line: bytes) -> Answer:
        if self._open is not None:
            self._answered.append(self._open)
        self._open, self._strays = None, 0
        if said.get("error") is not None:
            error = said["error"]
            text = error if isinstance(error, str) else orjson.dumps(error).decode()
            return Answer(error=excerpt(text, MAX_ERROR))
        if "result" not in said:
            raise SubagentProtocolError(f"gave an answer with neither a result nor an error: {shown(line)}")
        return Answer(said["result"])


def parsed(line: bytes) -> Any:
    """The JSON value of a line.

    Raises:
        SubagentProtocolError: it is none.
    """
    try:
        return parse_json(line, "answer")
    except EventValidationError as error:
        raise SubagentProtocolError(f"gave an answer that {error.reason}: {shown(line)}") from None


def shown(line: bytes) -> str:
    """The beginning of a line, for people."""
    return excerpt(line[: 4 * _SHOWN].decode(errors="backslashreplace")) or "(an empty line)"


def excerpt(text: str, limit: int = _SHOWN) -> str:
    """The beginning of a program's text, on one line, without what a terminal would obey."""
    clean = escaped(text[:limit].strip())
    return clean if len(text) <= limit else f"{clean}…"
