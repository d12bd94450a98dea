"""`@capability`: a function as a capability, with schemas from its annotations (RFC-0005, RFC-1001 §10.1).

Decision record: what a marked function means depends on who has the graph. In an agent without a graph of its
own, each marked method becomes a node, and a run calls one: arguments in, result out. In an agent with a
graph, a run always executes that graph; so the mark is on the node whose value ends the run, and says what
goes in (the annotation of its state) and what comes out (the annotation of its result). The graph is never
extended behind its author's back: runs are pinned to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict, TypeVar, Union, get_type_hints, overload

from langgraph.graph import END, START, StateGraph
from pydantic import PydanticUserError, ValidationError

from noesium_stream.errors import CapabilityError, ConfigError
from noesium_stream.event.standard import (
    Capability,
    CapabilityType,
    DeterminismClass,
    LatencyClass,
    SideEffectClass,
)
from noesium_stream.tool.signature import KEY, Signature, no_schema, schema_of, signature_of

F = TypeVar("F", bound=Callable[..., Any])
_UNTYPED: Final[tuple[Any, Any]] = (TypedDict, Union)
_MARK: Final = "_capability_mark"


@dataclass(frozen=True, slots=True)
class Mark:
    """What `capability` was given; `side_effects` None: the default of whoever offers the function."""

    id: str | None
    version: str
    description: str | None
    side_effects: SideEffectClass | None
    determinism_class: DeterminismClass
    latency_class: LatencyClass
    tags: tuple[str, ...]
    priority: int
    weight: int
    required_roles: tuple[str, ...]
    required_scopes: tuple[str, ...]


@overload
def capability(id: F) -> F: ...


@overload
def capability(
    id: str | None = None,
    *,
    version: str = "1.0.0",
    description: str | None = None,
    side_effects: SideEffectClass | None = None,
    determinism_class: DeterminismClass = DeterminismClass.NONDETERMINISTIC,
    latency_class: LatencyClass = LatencyClass.MEDIUM,
    tags: Sequence[str] = (),
    priority: int = 0,
    weight: int = 1,
    required_roles: Sequence[str] = (),
    required_scopes: Sequence[str] = (),
) -> Callable[[F], F]: ...


def capability(
    id: Any = None,
    *,
    version: str = "1.0.0",
    description: str | None = None,
    side_effects: SideEffectClass | None = None,
    determinism_class: DeterminismClass = DeterminismClass.NONDETERMINISTIC,
    latency_class: LatencyClass = LatencyClass.MEDIUM,
    tags: Sequence[str] = (),
    priority: int = 0,
    weight: int = 1,
    required_roles: Sequence[str] = (),
    required_scopes: Sequence[str] = (),
) -> Any:
    """Offer a function or a method as a capability; its schemas are derived from its annotations.

        class Shop(BaseGraphicAgent):
            agent_type = "shop"

            @capability(side_effects=SideEffectClass.PURE)
            async def price(self, item: str, currency: str = "EUR") -> int: ...

    Other agents call it with `await step.invoke("shop.price", {"item": "bread"})`. In an agent without a
    graph a run calls the method as its only step: the input's fields are the arguments, its value is the
    run's result. In an agent with a graph (`_build_graph`, or `agent_from_graph(graph, capabilities=[node])`)
    the run executes the graph; mark the node that ends it: the annotation of its state is the input schema,
    that of its result the output schema. `agent_from_tools` offers a marked function also as a tool.

    Args:
        id: its name, best `DOMAIN.VERB`; by default `AGENT_TYPE.FUNCTION`.
        version: its semantic version; what is registered under a version never changes.
        description: by default the function's docstring.
        side_effects: what a second call does outside; by default external (a tool: as its toolkit's).
        determinism_class: whether the same input always gives the same output.
        latency_class: time to an answer.
        tags: words that it is found by.
        priority: providers of higher priority are chosen first.
        weight: among those of one priority.
        required_roles: a run that calls it must act with all of these (see the guide `secure`).
        required_scopes: and with all of these.

    The function itself stays unchanged.

    Raises:
        ConfigError: when the agent's class is made: no schema can be made of an annotation, two functions
            have one id, or a value is not valid.
    """
    if callable(id):
        return capability()(id)
    chosen = None if side_effects is None else SideEffectClass(side_effects)
    mark = Mark(
        id,
        version,
        description,
        chosen,
        determinism_class,
        latency_class,
        tuple(tags),
        priority,
        weight,
        tuple(required_roles),
        tuple(required_scopes),
    )

    def annotate(function: F) -> F:
        setattr(function, _MARK, mark)
        return function

    return annotate


def mark_of(function: Any) -> Mark | None:
    """What `capability` declared of a function; None: it is not marked."""
    mark = getattr(function, _MARK, None)
    return mark if isinstance(mark, Mark) else None


def marked_in(kind: type) -> dict[str, Callable[..., Any]]:
    """The marked functions of a class and its bases, by name, in the order of definition."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    found = {name: inspect.getattr_static(kind, name, None) for name in names}
    return {
        name: function
        for name, function in found.items()
        if inspect.isfunction(function) and mark_of(function) is not None
    }


def offered_function(
    function: Callable[..., Any],
    agent_type: str,
    *,
    side_effects: SideEffectClass = SideEffectClass.EXTERNAL,
    capability_type: CapabilityType = CapabilityType.IN_PROCESS_TOOL,
) -> tuple[Capability, Signature]:
    """The capability of a marked function that a run calls, and its signature.

    Raises:
        ConfigError: as `capability`.
    """
    name = function.__name__
    signature = signature_of(function, name, f"the capability {_id_of(function, agent_type)}")
    schemas = signature.input_schema, signature.output_schema
    return _capability(function, agent_type, schemas, side_effects, capability_type), signature


def offered_node(function: Any, agent_type: str) -> Capability:
    """The capability of a marked node of a graph.

    Raises:
        ConfigError: it is not marked, or as `capability`.
    """
    if not inspect.isroutine(function) or mark_of(function) is None:
        raise ConfigError(
            f"{agent_type} cannot offer {function!r}, which is no capability.",
            hint="Put @capability on the node's function, or give a Capability with its schemas.",
        )
    what = f"the capability {_id_of(function, agent_type)}"
    parameters = [one for one in inspect.signature(function).parameters if one != "self"]
    try:
        hints = get_type_hints(function, include_extras=True)
        if not parameters or parameters[0] not in hints:
            raise ConfigError(
                f"{what[:1].upper()}{what[1:]} is of a node that does not say what its state is.",
                hint=f"The agent has a graph, so {function.__name__} is one of its nodes: annotate its first "
                "parameter with the class of the state. In an agent without a graph it may be any function.",
            )
        schemas = schema_of(hints[parameters[0]]), schema_of(hints.get("return", Any))
    except (TypeError, ValueError, NameError, PydanticUserError) as error:
        raise no_schema(what, error) from error
    return _capability(function, agent_type, schemas, SideEffectClass.EXTERNAL, CapabilityType.SUBAGENT)


def _id_of(function: Callable[..., Any], agent_type: str) -> str:
    mark = mark_of(function)
    return (mark.id if mark else None) or f"{agent_type}.{function.__name__}"


def _capability(
    function: Callable[..., Any],
    agent_type: str,
    schemas: tuple[dict[str, Any], dict[str, Any]],
    side_effects: SideEffectClass,
    capability_type: CapabilityType,
) -> Capability:
    mark = mark_of(function)
    if mark is None:
        raise ValueError(f"{function} is not marked")
    try:
        return Capability(
            id=_id_of(function, agent_type),
            version=mark.version,
            description=inspect.getdoc(function) or "" if mark.description is None else mark.description,
            capability_type=capability_type,
            input_schema=schemas[0],
            output_schema=schemas[1],
            side_effects=mark.side_effects or side_effects,
            determinism_class=mark.determinism_class,
            latency_class=mark.latency_class,
            tags=list(mark.tags),
            priority=mark.priority,
            weight=mark.weight,
            required_roles=list(mark.required_roles),
            required_scopes=list(mark.required_scopes),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"@capability on {function.__name__}: {'.'.join(map(str, first['loc']))}: {first['msg']}."
        ) from error


class Functions:
    """The marked methods of an agent without a graph of its own: its graph, and its runs' first states.

    Raises:
        ConfigError: as `capability`.
    """

    def __init__(self, agent_type: str, methods: Mapping[str, Callable[..., Any]]) -> None:
        self._agent_type = agent_type
        self._methods: dict[str, tuple[str, Signature, bool]] = {}
        offered = []
        for name, function in methods.items():
            made, signature = offered_function(function, agent_type)
            if made.id in self._methods:
                raise ConfigError(
                    f"The agent {agent_type} has two functions for the capability {made.id}.",
                    hint="A run calls one: give the other one another id.",
                )
            if KEY in inspect.signature(function).parameters:
                raise ConfigError(
                    f"The capability {made.id} takes {KEY}, which is for calls of the outside world.",
                    hint="Make such a call from it: await current_step().effect(...).",
                )
            self._methods[made.id] = name, signature, inspect.iscoroutinefunction(function)
            offered.append(made)
        self.capabilities: Final = tuple(offered)
        self.state: Final[Any] = _state(signature.returns for _, signature, _ in self._methods.values())

    def graph(self, agent: Any) -> StateGraph[Any, Any, Any, Any]:
        """A graph with a node for each method; a run enters the one of its capability."""
        graph = StateGraph(self.state)
        for name, signature, is_async in self._methods.values():
            graph.add_node(name, _node(getattr(agent, name), signature, is_async), input_schema=self.state)
            graph.add_edge(name, END)
        ways = {id: name for id, (name, _, _) in self._methods.items()}
        graph.add_conditional_edges(START, _chosen, ways)  # type: ignore[arg-type]
        return graph

    def first_state(self, given: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        """The first state of a run; one that no agent has called may leave out which, if there is one only.

        Raises:
            CapabilityError: there is no such capability, or it does not take this input.
        """
        chosen = capability_id
        if chosen is None and len(self._methods) == 1:
            (chosen,) = self._methods
        if chosen is None or chosen not in self._methods:
            raise CapabilityError(
                f"{chosen or 'A run without a capability'} is none of {self._agent_type}; it offers "
                f"{', '.join(self._methods)}.",
                hint="Call one from a node: await current_step().invoke(CAPABILITY, {...}).",
            )
        self._methods[chosen][1].check(chosen, given)
        return {"capability": chosen, "arguments": given}


def _state(results: Iterable[Any]) -> Any:
    """The state of a run that calls one function; it mentions their results: others it could not hold."""
    new, union = _UNTYPED
    held = {"capability": str, "arguments": dict[str, Any], "result": union[tuple(results)]}
    return new("Called", held, total=False)


def _chosen(state: dict[str, Any]) -> str:
    return str(state["capability"])


def _node(method: Any, signature: Signature, is_async: bool) -> Callable[..., Any]:
    """A node that calls `method`; it bears its name, and what else is declared of it (`kernel_node`)."""

    def call(state: dict[str, Any]) -> dict[str, Any]:
        return {"result": method(**signature.typed(state["arguments"]))}

    async def call_async(state: dict[str, Any]) -> dict[str, Any]:
        return {"result": await method(**signature.typed(state["arguments"]))}

    node: Any = call_async if is_async else call
    vars(node).update(vars(method.__func__))
    node.__name__, node.__qualname__, node.__doc__ = method.__name__, method.__qualname__, method.__doc__
    # LangGraph reads a node's parameters; the source of its errors is the method's.
    node.__signature__ = inspect.signature(node)
    node.__wrapped__ = method.__func__
    return node  # type: ignore[no-any-return]
