"""Where the data of a run comes from: labels of tool results, and which of them can have reached a call.

A fold over a run's events, pure. A label (`web`, `document`, `mcp:NAME`) is what a tool's results are
declared to come from. Labels flow on: what a step can have read is labelled with all that came before it
(results in earlier supersteps, and earlier ones of the step itself), so nothing that a model or a node makes
of a page loses the page's label. An argument has no label if a person has said it: each of its values occurs,
as a whole word, in the run's input or in an answer.

A fork begins with the labels and the sayings that its parent had at that step: its command carries them. If
it does not (an earlier release), all that it shares has the label `UNKNOWN_LABEL`, which every rule about
labels covers, and its input was not said by a person: it may come from an agent that called the parent. A new
segment begins with what its first event carries over.

Sound rather than exact: a constant in the code of a node behind a page has the page's label, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import ANSWERS, COMMANDS, input_of
from noesium_stream.event.standard.agent import UNKNOWN_LABEL

MAX_SAID: Final = 262_144
"""Characters of what people have said that are looked through."""
SAID: Final = 32_768
"""Characters of what people have said that a segment or a fork begins with."""
LABEL_SOURCE: Final = "label:"
"""Begins a source of a memory that is a label of what its step could have read."""
_DEPTH: Final = 32


@dataclass(slots=True)
class Provenance:
    """The labels of one run's data; `apply` takes its records in order.

    Attributes:
        run_id: the run.
        given: labels of the run's input, of what its caller had read; in a fork of what it shares.
        steps: superstep and task path by the event id of a node's entry.
        found: labels of results, by the event id of the entry of the node that got them.
        said: what people have said, as one text.
    """

    run_id: str = ""
    given: frozenset[str] = frozenset()
    steps: dict[str, tuple[int, str]] = field(default_factory=dict)
    found: dict[str, frozenset[str]] = field(default_factory=dict)
    said: str = ""
    _homes: dict[str, str] = field(default_factory=dict)

    def apply(self, event: EventEnvelope) -> None:
        """Apply the next record."""
        handler = _HANDLERS.get(event.event_type)
        if handler is not None:
            handler(self, event, event.payload)

    def reaching(self, entered_id: str) -> frozenset[str]:
        """The labels of all that the node with this entry can have read by now."""
        step, path = self.steps.get(entered_id, (0, ""))
        labels = set(self.given)
        for home, found in self.found.items():
            number, other = self.steps[home]
            same = number == step and (home == entered_id or "|" in path or "|" in other)
            if number < step or same:
                labels |= found
        return frozenset(labels)

    def until(self, step: int) -> frozenset[str]:
        """The labels of what the steps until superstep `step` can have read or found."""
        found = (labels for home, labels in self.found.items() if self.steps[home][0] <= step)
        return self.given.union(*found)

    @property
    def everywhere(self) -> frozenset[str]:
        """All labels of the run."""
        return self.given.union(*self.found.values())

    def of_arguments(self, entered_id: str, arguments: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The labels of the arguments of a call by the node with this entry; without those that have none."""
        labels = tuple(sorted(self.reaching(entered_id)))
        if not labels:
            return {}
        return {name: labels for name, value in arguments.items() if not self.has_said(value)}

    def has_said(self, value: Any) -> bool:
        """Whether a person has said a JSON value: each text and number in it is a whole word of theirs."""
        return all(self._is_word(leaf) for leaf in _leaves(value, _DEPTH))

    def _is_word(self, leaf: Any) -> bool:
        if isinstance(leaf, bool) or leaf is None or leaf == "":
            return True
        text = leaf if isinstance(leaf, str) else str(leaf)
        if len(text) > MAX_SAID:
            return False
        return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", self.said) is not None

    def _hear(self, value: Any) -> None:
        if len(self.said) < MAX_SAID:
            self.said = _joined(self.said, value)[:MAX_SAID]

    def said_until_now(self, value: Any = None) -> str:
        """The end of what people have said, with a JSON value that a person says now."""
        return _joined(self.said, value)[-SAID:]

    def begin_fork(self, labels: Collection[str] | None, said: str) -> None:
        """Begin with what a fork shares; `labels` None: its command does not say which labels that has."""
        self.given = frozenset((UNKNOWN_LABEL,) if labels is None else labels)
        self.said = said

    def _find(self, home: str | None, labels: Any) -> None:
        if home in self.steps and isinstance(labels, list):
            self.found[home] = self.found.get(home, frozenset()) | frozenset(map(str, labels))


def _joined(said: str, value: Any) -> str:
    return "\n".join((said, *(str(leaf) for leaf in _leaves(value, _DEPTH) if leaf is not None)))


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    if depth == 0:
        yield ...  # what is so deep, nobody has said
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield name
            yield from _leaves(item, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item, depth - 1)
    else:
        yield value


def _command(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if run.steps or (payload.get("reply_to") is None and event.event_type != "run.requested"):
        return
    labels, fork = payload.get("labels"), payload.get("fork")
    if isinstance(fork, Mapping):
        run.begin_fork(fork.get("labels"), fork.get("said", ""))
    elif isinstance(labels, list) and labels:
        run.given = frozenset(map(str, labels))
    else:
        run._hear(list(input_of(payload).values()))


def _entered(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    path = payload["task_path"]
    step = payload["step"]
    for part in path.split(":") if "|" in path else ():  # within a subgraph: the superstep of the run's own
        if not part.isdigit():
            break
        step = int(part)
    run.steps.setdefault(event.event_id, (step, path))


def _invoked(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if event.causation_id is not None:
        run._homes[payload["call_id"]] = event.causation_id


def _completed(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run._find(run._homes.get(payload["call_id"]), payload.get("labels"))


def _called(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    reply_to = payload.get("reply_to")
    if run.steps and isinstance(reply_to, Mapping) and event.causation_id in run.steps:
        run._homes[str(reply_to.get("call_id"))] = str(event.causation_id)


def _command_or_call(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    (_called if run.steps else _command)(run, event, payload)


def _answered(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run._hear(payload.get("value"))


def _started(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.run_id = run.run_id or payload["run_id"]


def _segment(run: Provenance, event: EventEnvelope, payload: dict[str, Any]) -> None:
    carried = payload.get("carried")
    if payload["run_id"] != run.run_id or not isinstance(carried, Mapping):
        return  # of the run that this one is a fork of
    known = carried.get("labels")
    run.given = frozenset(known) if isinstance(known, list) else run.everywhere
    run.said = str(carried.get("said", ""))
    run.steps, run.found, run._homes = {}, {}, {}


Handler = Callable[[Provenance, EventEnvelope, dict[str, Any]], None]

_HANDLERS: Final[Mapping[str, Handler]] = {
    **dict.fromkeys(COMMANDS, _command_or_call),
    **dict.fromkeys(ANSWERS, _completed),
    "kernel.node.entered": _entered,
    "tool.invoked": _invoked,
    "tool.completed": _completed,
    "approval.answered": _answered,
    "run.signalled": _answered,
    "run.started": _started,
    "run.segment.started": _segment,
}
