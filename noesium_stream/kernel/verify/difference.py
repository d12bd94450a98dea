"""Differences between a recorded run and its replay, in a form that a person understands at once.

step 4, node weigh: the second call differs
  recorded  corpus.search {"query": "worker resume", "limit": 12}
  now       corpus.search {"query": "worker resume", "limit": 20}
  in agents/researcher/agent.py, function weigh
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from noesium_stream.event.payload.value import short_path
from noesium_stream.event.rules.agent_calls import CALLS, input_of
from noesium_stream.kernel.recording.recorded_run import same

_WIDTH: Final = 400
_ORDINALS: Final = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)
NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a replay.

    Attributes:
        step: superstep, from 1; 0 is the run as a whole.
        node: the node's name in the recording, or the new one's where the recording has none.
        what: one phrase that names the difference.
        recorded: the recorded value.
        now: the value of today's code.
        where: file and function of the node's code, if they are known.
    """

    step: int
    node: str | None
    what: str
    recorded: str
    now: str
    where: str | None = None

    def __str__(self) -> str:
        place = f"step {self.step}, node {self.node}" if self.node is not None else "the run"
        lines = [f"{place}: {self.what}", f"  recorded  {self.recorded}", f"  now       {self.now}"]
        if self.where is not None:
            lines.append(f"  code      {self.where}")
        return "\n".join(lines)


def ordinal(index: int) -> str:
    """`first` for 0, and so on; `21st` where words end."""
    if index < len(_ORDINALS):
        return _ORDINALS[index]
    number = index + 1
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def text(value: Any) -> str:
    """A JSON value on one line; a long one is cut."""
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    flat = " ".join(written.split())
    return flat if len(flat) <= _WIDTH else f"{flat[: _WIDTH - 1]}…"


def describe_call(event_type: str, payload: Mapping[str, Any]) -> str:
    """`corpus.search {"limit": 12}`, `pay(5, currency="EUR")`, `question {...}`."""
    if event_type in CALLS:
        return text(f"{payload['capability_id']} {json.dumps(input_of(payload), ensure_ascii=False)}")
    if event_type == "capability.requested":
        return f"{payload['capability_id']} {payload.get('version_range') or ''}".rstrip()
    if event_type == "capability.unresolved":
        return f"{payload['capability_id']} {payload.get('version_range') or ''} (nobody offers it)"
    if event_type == "effect.requested":
        given = payload.get("arguments") or {}
        parts = [json.dumps(item, ensure_ascii=False) for item in given.get("args", ())]
        parts += [
            f"{name}={json.dumps(item, ensure_ascii=False)}" for name, item in given.get("kwargs", {}).items()
        ]
        return text(f"{payload['name']}({', '.join(parts)})")
    if event_type == "approval.requested":
        return text(f"question {json.dumps(payload['question'], ensure_ascii=False)}")
    return text(f"{event_type} {json.dumps(dict(payload), ensure_ascii=False)}")


def first_difference(recorded: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The path of the first part that differs and both values there; None if nothing does.

    A part that is missing on one side is a `Missing`.
    """
    if same(recorded, now):
        return None
    path = short_path(path)
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for key in [*recorded, *(key for key in now if key not in recorded)]:
            found = first_difference(
                recorded.get(key, MISSING), now.get(key, MISSING), f"{path}.{key}" if path else str(key)
            )
            if found is not None:
                return found
    if isinstance(recorded, Sequence) and isinstance(now, Sequence) and not isinstance(recorded, str):
        if isinstance(now, str):
            return path, recorded, now
        for index in range(max(len(recorded), len(now))):
            left = recorded[index] if index < len(recorded) else MISSING
            right = now[index] if index < len(now) else MISSING
            found = first_difference(left, right, f"{path}[{index}]")
            if found is not None:
                return found
    return path, recorded, now


class Missing:
    """Placeholder for a value that one side does not have."""

    def __repr__(self) -> str:
        return NOTHING


MISSING: Final = Missing()


def shown(value: Any) -> str:
    """One side of a difference, as text."""
    return NOTHING if isinstance(value, Missing) else text(json.dumps(value, ensure_ascii=False))


def source_of(bound: Any) -> str | None:
    """`agents/researcher/agent.py, function weigh` of a node's runnable; None if it is unknown."""
    function: Any = getattr(bound, "func", None) or getattr(bound, "afunc", None)
    function = getattr(function, "func", function)  # a partial
    try:
        path = Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
    except (TypeError, ValueError):
        return None
    if not path.name:
        return None
    try:
        path = path.relative_to(Path.cwd())
    except ValueError:
        path = Path(path.name)
    return f"{path}, function {getattr(function, '__name__', type(function).__name__)}"
