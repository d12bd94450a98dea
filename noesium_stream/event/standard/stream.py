"""Answers in pieces (RFC-0002, streaming), and progress: events of the short-lived stream topic."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from noesium_stream.event.standard.attributes import Number
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Text, Whole


class StreamPiece(StandardEvent, event_type="stream.piece"):
    """A piece of what a node of a run is making; the durable result of the node is in the journal.

    The envelope's `stream_sequence` counts from 0 within one execution of the node. The last event of an
    execution (`stream_final`) has no data, but the number of its pieces. Executions of a node follow each
    other by the epoch of the partition's owner and their number within it: the pieces of a later execution
    replace those of an earlier one.
    """

    run_id: Identifier
    node: Name
    step: Whole = Field(ge=0)
    task_path: Name
    epoch: Whole = Field(ge=0)
    execution: Whole = Field(ge=0)
    data: Any = None
    pieces: Whole | None = Field(default=None, ge=0)

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("pieces",)


class ToolProgressed(StandardEvent, event_type="stream.progress"):
    """What a tool says of a call that goes on; what came of the call is in the journal."""

    run_id: Identifier
    node: Name
    step: Whole = Field(ge=0)
    task_path: Name
    tool: Name
    call_id: Identifier
    done: Number
    total: Number | None = None
    message: Text = ""

    PERSONAL: ClassVar[tuple[str, ...]] = ("message",)
