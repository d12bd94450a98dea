"""The agents of a simulated world: `caller` does what its input says, one thing per step; so does `carrier`,
which is asked by callers. `runner` and `walker` offer the same: whoever asks gets the runner, which does all
and then fails, and the walker after it.

An input is a list of orders: `["external", WORDS]`, `["ask", WORDS]`, `["nap", SECONDS]`, `["fan", ORDERS]`…
What a run that completes has to give follows from its orders alone (`answers_of`).
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Final, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.clock import to_datetime
from noesium_stream.errors import (
    DeadlineExceededError,
    ToolInputError,
    ToolPermissionError,
    ToolTimeoutError,
)
from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.kernel import Retries, current_step
from noesium_stream.kernel.decorators import kernel_compensation
from tests.sim.model_orders import ask_model
from tests.sim.world import WORLD, result_of

Order = Sequence[Any]

CALLER: Final = "caller"
CARRIER: Final = "carrier"
RUNNER: Final = "runner"
WALKER: Final = "walker"
CARRY: Final = "parcel.carry"
FETCH: Final = "parcel.fetch"
GO: Final = "go"
LATE: Final = "late"
"""What a call gives whose deadline has passed."""

DENIED: Final = "denied"
"""What a tool call gives that was refused."""

_ANYTHING: Final[dict[str, Any]] = {}
_RETRIES: Final = Retries(max_attempts=5, initial_interval=timedelta(seconds=1), jitter=0.5)


class ParcelSeen(DomainEvent, event_type="parcel.seen"):
    words: str


class State(TypedDict, total=False):
    orders: list[Any]
    at: int
    got: Annotated[list[Any], operator.add]


async def pure(words: str, idempotency_key: str) -> str:
    return await WORLD.get().do("pure", words, idempotency_key)


async def idempotent(words: str, idempotency_key: str) -> str:
    return await WORLD.get().do("idempotent", words, idempotency_key)


async def external(words: str, idempotency_key: str) -> str:
    return await WORLD.get().do("external", words, idempotency_key)


@kernel_compensation()
async def undo(result: str, words: str, idempotency_key: str) -> str:
    return await WORLD.get().do("undo", words, idempotency_key)


async def perform(order: Order) -> Any:
    """Do what one order says, within a step."""
    kind, *rest = order
    return await _PERFORM[kind](*rest)


async def _pure(words: str) -> Any:
    return await current_step().effect("pure", pure, words, effect_class=SideEffectClass.PURE)


async def _idempotent(words: str) -> Any:
    return await current_step().effect(
        "idempotent", idempotent, words, effect_class=SideEffectClass.IDEMPOTENT, retries=_RETRIES
    )


async def _external(words: str) -> Any:
    return await current_step().effect("external", external, words, retries=_RETRIES)


async def _undoable(words: str) -> Any:
    return await current_step().effect("external", external, words, retries=_RETRIES, compensate=undo)


async def _repeatable(words: str) -> Any:
    kind = SideEffectClass.IDEMPOTENT
    return await current_step().effect("idempotent", idempotent, words, effect_class=kind, compensate=undo)


async def _timed(words: str, seconds: float) -> Any:
    return await current_step().effect("external", external, words, timeout=timedelta(seconds=seconds))


async def _timed_again(words: str, seconds: float) -> Any:
    return await current_step().effect(
        "idempotent",
        idempotent,
        words,
        effect_class=SideEffectClass.IDEMPOTENT,
        timeout=timedelta(seconds=seconds),
        retries=_RETRIES,
    )


async def _ask(words: str) -> Any:
    return (await current_step().interrupt(words)).approved


async def _ask_soon(words: str, seconds: float) -> Any:
    limit = timedelta(seconds=seconds)
    await current_step().interrupt(words, timeout=limit, on_timeout="reject")
    return "asked"


async def _nap(seconds: float) -> Any:
    await current_step().sleep(timedelta(seconds=seconds))
    return "slept"


async def _doze(shortest_s: float, longest_s: float) -> Any:
    """A nap of another length in each run."""
    return await _nap(shortest_s + current_step().random() * (longest_s - shortest_s))


async def _later(words: str, seconds: float) -> Any:
    await current_step().sleep(timedelta(seconds=seconds))
    return await current_step().effect("external", external, words)


async def _until(at_ms: int) -> Any:
    await current_step().sleep_until(to_datetime(at_ms))
    return "slept"


async def _signal(name: str) -> Any:
    return await current_step().signal(name)


async def _call(orders: Sequence[Order]) -> Any:
    # A carrier that a client asks for may have another carrier carry.
    return (await current_step().invoke(CARRY, {"orders": orders}, allow_cycle=True))["got"]


async def _call_by(orders: Sequence[Order], seconds: float) -> Any:
    step = current_step()
    limit = timedelta(seconds=seconds)
    try:
        return (await step.invoke(CARRY, {"orders": orders}, deadline=limit, allow_cycle=True))["got"]
    except DeadlineExceededError:
        return LATE


async def _fetch(orders: Sequence[Order]) -> Any:
    return (await current_step().invoke(FETCH, {"orders": orders}))["got"]


async def _fan(orders: Sequence[Order]) -> Any:
    return list(await asyncio.gather(*(perform(order) for order in orders)))


async def _emit(words: str) -> Any:
    current_step().emit(ParcelSeen(words=words))
    return "emitted"


async def _tool(name: str, words: str) -> Any:
    try:
        return await current_step().tool(name, words=words)
    except ToolTimeoutError:
        return LATE
    except (ToolPermissionError, ToolInputError):
        return DENIED


async def _help(orders: Sequence[Order]) -> Any:
    return (await current_step().invoke("spend.help", {"orders": orders}))["got"]


async def _fail() -> Any:
    raise ValueError("told to fail")


_PERFORM: Final[dict[str, Callable[..., Any]]] = {
    "pure": _pure,
    "idempotent": _idempotent,
    "external": _external,
    "undoable": _undoable,
    "repeatable": _repeatable,
    "timed": _timed,
    "timed again": _timed_again,
    "ask": _ask,
    "ask soon": _ask_soon,
    "nap": _nap,
    "doze": _doze,
    "later": _later,
    "until": _until,
    "signal": _signal,
    "call": _call,
    "call by": _call_by,
    "fetch": _fetch,
    "fan": _fan,
    "emit": _emit,
    "tool": _tool,
    "model": ask_model,
    "help": _help,
    "fail": _fail,
}


_CALLS: Final = {
    "pure": "pure",
    "idempotent": "idempotent",
    "external": "external",
    "undoable": "external",
    "repeatable": "idempotent",
    "timed": "external",
    "later": "external",
    "timed again": "idempotent",
}
_ANSWERS: Final = {"ask soon": "asked", "nap": "slept", "until": "slept", "signal": GO, "emit": "emitted"}


class Either:
    """Equal to each of these."""

    def __init__(self, *values: object) -> None:
        self._values = values

    def __eq__(self, other: object) -> bool:
        return other in self._values

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return " or ".join(map(repr, self._values))


class _Anything:
    """Equal to all."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def answer_of(order: Order, asked: Any = True) -> Any:
    """What an order gives if all goes well, and people say `asked`."""
    kind, *rest = order
    if kind == "tool":
        return _Anything()  # see `tool_rules`
    if kind in _CALLS:
        return result_of(_CALLS[kind], rest[0])
    if kind in ("call", "fetch", "fan"):
        return [answer_of(one, asked) for one in rest[0]]
    if kind == "call by":
        return Either([answer_of(one, asked) for one in rest[0]], LATE)
    return asked if kind == "ask" else _ANSWERS.get(kind)


async def do(state: State) -> dict[str, Any]:
    order = state["orders"][state["at"]]
    return {"at": state["at"] + 1, "got": [await perform(order)]}


def more(node: str, state: State) -> str:
    return node if state["at"] < len(state["orders"]) else END


@cache
def _graph(node: str) -> CompiledStateGraph[Any, Any, Any, Any]:
    return _builder(node).compile()


def _builder(node: str) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    graph.add_node(node, do)
    graph.add_edge(START, node)
    graph.add_conditional_edges(node, partial(more, node), [node, END])
    return graph


class Caller(BaseGraphicAgent):
    agent_type = CALLER
    events = (ParcelSeen,)
    node: ClassVar[str] = "do"

    @property
    def graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        return _graph(self.node)

    def get_state_class(self) -> type[Any]:
        return State

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        return _builder(self.node)

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        return {"orders": input["orders"], "at": 0, "got": []}

    def result(self, state: dict[str, Any]) -> Any:
        return {"got": state["got"]}


def _fetching(priority: int) -> Capability:
    return Capability(
        id=FETCH,
        input_schema=_ANYTHING,
        output_schema=_ANYTHING,
        side_effects=SideEffectClass.IDEMPOTENT,
        priority=priority,
    )


class Carrier(Caller):
    agent_type = CARRIER
    capabilities = (Capability(id=CARRY, input_schema=_ANYTHING, output_schema=_ANYTHING),)


class Walker(Caller):
    agent_type = WALKER
    capabilities = (_fetching(0),)


class Runner(Caller):
    """Does all that it is asked for, and fails."""

    agent_type = RUNNER
    capabilities = (_fetching(5),)

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        return super().initial_state({"orders": [*input["orders"], ["fail"]]}, capability_id)


class NewCaller(Caller):
    """Another graph: a run of one version cannot go on with the other."""

    version = "2.0.0"
    node = "perform"


class NewCarrier(Carrier):
    version = "2.0.0"
    node = "perform"


NODES: Final = {kind.version: kind.node for kind in (Caller, NewCaller)}
"""The node of which a version's graph consists."""
