"""The plan of one move to a graph's next version: the content of `run.migrated`, or why the run cannot move.

A refused run stays as it is; the next worker that takes it up plans again. Order of the checks: 1. which
nodes are due, and whether the new graph finds their recorded results, 2. what waits at joins and for the end,
3. the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from langgraph.channels.any_value import AnyValue
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.channels.last_value import LastValue, LastValueAfterFinish
from langgraph.channels.named_barrier_value import NamedBarrierValue, NamedBarrierValueAfterFinish
from langgraph.channels.topic import Topic
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.errors import MigrationError, NoesiumError, brief
from noesium_stream.event.standard import RunMigrated
from noesium_stream.kernel.graph.resume import ResumePoint
from noesium_stream.kernel.graph_fingerprint import graph_shape
from noesium_stream.kernel.migration.migration import Graph, Migration, State, Version
from noesium_stream.kernel.migration.walk import arrivals, due, renamed_now
from noesium_stream.kernel.run_history import RunHistory, StepKey, nested_in, step_id
from noesium_stream.kernel.state.node_values import restore, update_keys
from noesium_stream.kernel.state.typed_json import building, check_size, decode, encode

_BRANCH: Final = "branch:to:"
_PULL: Final = "pull:"
_END: Final = "__end__"
_MOVABLE: Final = (LastValue, BinaryOperatorAggregate, EphemeralValue, AnyValue, Topic)
_LATER: Final = "The run can be moved when a worker with its graph has finished that step."


def plan(old: Version, new: Version, point: ResumePoint, history: RunHistory, run_id: str) -> RunMigrated:
    """The move of a run that stands at `point` in the graph of `old`.

    Args:
        old: the run's version, with the migration that leads to `new`.
        new: the version after it.
        point: its position (see `walk.stand`).
        history: all of the run's records.
        run_id: the run.

    Raises:
        MigrationError: it cannot be moved, or not yet; names the node, the join or the function.
    """
    migration = old.leaving
    if migration is None:
        raise ValueError("there is no version after this one")
    _require_movable(old)
    _require_movable(new)
    names = {name: migration.nodes.get(name, name) for name in old.graph.nodes}
    nodes = due(old, point)
    _check_due(new, nodes, names)
    _check_recorded(old, new, point.step, nodes, names, history)
    joins = _joins(old, new, point, names)
    _check_new_joins(old, new, point.step, names, history)
    state = _state(migration, old, new, point)
    _check_inputs(new, [names[name] for name in nodes], state)
    return RunMigrated(
        run_id=run_id,
        agent_version=new.ref.version,
        from_graph=old.ref,
        to_graph=new.ref,
        step=point.step,
        state=state,
        next=sorted(names[name] for name in nodes),
        joins=joins,
        deferred=_deferred(old, new, point, names),
        renamed=dict(migration.nodes),
    )


def state_keys(graph: Graph) -> dict[str, Any]:
    """The channels of a graph that make up its state, by name."""
    hidden = ("__", "branch:", "join:")
    return {name: channel for name, channel in graph.channels.items() if not name.startswith(hidden)}


def _require_movable(version: Version) -> None:
    if "__root__" in version.graph.channels:
        raise MigrationError(
            f"The state of {_named(version)} is not made of keys, and cannot be moved.",
            hint="Declare it as a TypedDict, a dataclass or a pydantic model.",
        )
    for name, channel in state_keys(version.graph).items():
        if type(channel) not in _MOVABLE:
            raise MigrationError(
                f"The key {name} of {_named(version)} is a {type(channel).__name__}, which cannot be moved.",
                hint="The run goes on with a worker that has its graph.",
            )


# -- 1. due nodes --------------------------------------------------------------------------------------


def _check_due(new: Version, nodes: Collection[str], names: Mapping[str, str]) -> None:
    taken: dict[str, str] = {}
    for name in nodes:
        renamed = names[name]
        if renamed not in new.graph.nodes:
            raise MigrationError(
                f"The node {name} is to run next, and {_named(new)} has no node {renamed}.",
                hint=f'Say what it is called there: nodes={{"{name}": ...}}; or let a worker with the run\'s '
                "graph go on with it until it is past that node.",
            )
        if renamed in taken:
            raise MigrationError(
                f"The nodes {taken[renamed]} and {name} are to run next, and both are {renamed} in "
                f"{_named(new)}: it would run once.",
                hint=_LATER,
            )
        taken[renamed] = name


def _check_recorded(
    old: Version,
    new: Version,
    step: int,
    nodes: Collection[str],
    names: Mapping[str, str],
    history: RunHistory,
) -> None:
    """Check that the new graph finds all that is recorded of superstep `step`."""
    begun = history.entered.keys() | history.completed.keys() | history.failed.keys()
    for key in sorted(key for key in begun if nested_in(key) is None and key[0] >= step):
        name = key[1].removeprefix(_PULL)
        if key[0] > step or not key[1].startswith(_PULL) or name not in nodes:
            event = history.entered.get(key) or history.completed.get(key) or history.failed[key]
            raise MigrationError(
                f"The node {event.payload['node']} has begun in step {key[0]}, where {_named(old)} does not "
                "run it by an edge: it cannot be moved.",
                hint=_LATER,
            )
        _check_node(old, new, key, name, names[name], history)


def _check_node(
    old: Version, new: Version, key: StepKey, name: str, renamed: str, history: RunHistory
) -> None:
    entered = history.entered.get(key)
    called = entered is not None and bool(history.calls.get(entered.event_id))
    inside = step_id(key) in history.subcalls
    recorded = called or inside or key in history.completed or history.failures[key] > 0
    if recorded and name != renamed:
        raise MigrationError(
            f"The node {name} is under way in step {key[0]}, and is called {renamed} in {_named(new)}: what "
            "it has on the log would not be found again.",
            hint=_LATER,
        )
    if key in history.completed:
        _check_delta(new, name, history.completed[key].payload.get("delta"))
    elif (called or inside) and _inner(old, name) != _inner(new, renamed):
        raise MigrationError(
            f"The node {name} is under way in step {key[0]}, and the graph inside of it is another one in "
            f"{_named(new)}.",
            hint=_LATER,
        )


def _inner(version: Version, name: str) -> list[Any]:
    subgraphs = version.graph.nodes[name].subgraphs
    return [graph_shape(inner) for inner in subgraphs if isinstance(inner, CompiledStateGraph)]


def _check_delta(new: Version, name: str, delta: Any) -> None:
    """Check that the new graph accepts the delta of a node that has ended beside others that have not."""
    returned = restore(delta)
    unknown = sorted(set(update_keys(returned)) - state_keys(new.graph).keys())
    if unknown:
        raise MigrationError(
            f"The node {name} has ended beside others that have not, and its delta writes "
            f"{', '.join(unknown)}, which {_named(new)} does not have.",
            hint=_LATER,
        )
    for item in returned if isinstance(returned, list) else [returned]:
        goto = getattr(item, "goto", ())
        for target in [goto] if isinstance(goto, str) or hasattr(goto, "node") else goto:
            where = getattr(target, "node", target)
            if where not in new.graph.nodes and where != _END:
                raise MigrationError(
                    f"The node {name} has ended beside others that have not, and goes on to {where}, which "
                    f"{_named(new)} does not have.",
                    hint=_LATER,
                )


# -- 2. waiting nodes ----------------------------------------------------------------------------------


def _joins(old: Version, new: Version, point: ResumePoint, names: Mapping[str, str]) -> dict[str, list[str]]:
    """The nodes that have arrived, by the channel of the new graph's join."""
    found = {}
    for name, arrived in arrivals(old, point).items():
        awaited = {names[source] for source in _barriers(old)[name].names}
        target = names.get(_target(old, name), _target(old, name))
        candidates = [
            other
            for other, channel in _barriers(new).items()
            if _sources(channel) == awaited and _target(new, other) == target
        ]
        if not candidates:
            raise MigrationError(
                f"The node {', '.join(sorted(arrived))} has arrived at the join of "
                f"{', '.join(sorted(_barriers(old)[name].names))} before {_target(old, name)}, which "
                f"{_named(new)} does not have.",
                hint="The run can be moved when a worker with its graph has got past that join.",
            )
        found[candidates[0]] = sorted(names[source] for source in arrived)
    return found


def _barriers(version: Version) -> dict[str, Any]:
    kinds = (NamedBarrierValue, NamedBarrierValueAfterFinish)
    return {name: channel for name, channel in version.graph.channels.items() if isinstance(channel, kinds)}


def _sources(channel: Any) -> frozenset[str]:
    return frozenset(channel.names)


def _target(version: Version, join: str) -> str:
    return next(name for name, node in version.graph.nodes.items() if join in node.triggers)


def _check_new_joins(
    old: Version, new: Version, step: int, names: Mapping[str, str], history: RunHistory
) -> None:
    """Refuse a new join that waits for a node which has run before the move."""
    ran = {
        names.get(name, name)
        for (number, path), event in history.completed.items()
        if number < step and nested_in((number, path)) is None
        for name in [renamed_now(event.payload["node"], number, history)]
    }
    known = {
        (frozenset(names[source] for source in channel.names), names.get(_target(old, name)))
        for name, channel in _barriers(old).items()
    }
    for name, channel in _barriers(new).items():
        sources, target = _sources(channel), _target(new, name)
        gone = sources & ran
        if (sources, target) not in known and gone and gone != sources:
            raise MigrationError(
                f"{_named(new)} joins {', '.join(sorted(sources))} before {target}; "
                f"{', '.join(sorted(gone))} has run already, and the join would wait for it for good.",
                hint="The run goes on with a worker that has its graph.",
            )


def _deferred(old: Version, new: Version, point: ResumePoint, names: Mapping[str, str]) -> list[str]:
    """Nodes that wait until nothing else is left to run."""
    found = []
    for name, channel in old.graph.channels.items():
        value = point.checkpoint["channel_values"].get(name)
        if not isinstance(channel, LastValueAfterFinish) or value is None or value[1]:
            continue
        node = names[name.removeprefix(_BRANCH)]
        if not isinstance(new.graph.channels.get(_BRANCH + node), LastValueAfterFinish):
            raise MigrationError(
                f"The node {name.removeprefix(_BRANCH)} waits until nothing else is left, and {_named(new)} "
                f"has no deferred node {node}.",
                hint="The run goes on with a worker that has its graph.",
            )
        found.append(node)
    return sorted(found)


# -- 3. the state --------------------------------------------------------------------------------------


def _state(migration: Migration, old: Version, new: Version, point: ResumePoint) -> State:
    """The new graph's state, recorded; the function runs twice and has to return the same."""
    values = point.checkpoint["channel_values"]
    function: Any = migration.state or dict
    what = "The state" if migration.state is None else f"The migration function {_function(function)}"
    try:
        with building(old.durable.reach.builds):
            given = encode({name: values[name] for name in state_keys(old.graph) if name in values}, "state")
            states = [function(decode(given)) for _ in range(2)]
        first, again = (_checked(state, what, new) for state in states)
        check_size(first, "state", what)
    except MigrationError:
        raise
    except Exception as error:
        said = brief(error) if isinstance(error, NoesiumError) else f"{type(error).__name__}: {brief(error)}"
        raise MigrationError(
            f"{what} from {_named(old)} to {_named(new)} fails: {said}",
            hint="Nothing was written; the run waits for a worker with its graph, or for a better function.",
        ) from error
    if first != again:
        differing = sorted(key for key in first.keys() | again.keys() if first.get(key) != again.get(key))
        raise MigrationError(
            f"{what} is not deterministic: run twice, it gives another {', '.join(differing)}.",
            hint="A pure function: no clock, no chance, no state of its own.",
        )
    return first


def _checked(state: Any, what: str, new: Version) -> State:
    if not isinstance(state, Mapping):
        raise MigrationError(
            f"{what} gives {type(state).__name__}, and a state is a dict by key.",
            hint="A plain function, not a coroutine: dict to dict.",
        )
    known = state_keys(new.graph)
    unknown = sorted(str(key) for key in state if key not in known)
    if unknown:
        raise MigrationError(
            f"{what} has {', '.join(unknown)}, which the state of {_named(new)} does not have.",
            hint=f"It has {', '.join(sorted(known))}: Migration(state=...) says what becomes of a key.",
        )
    with building(new.durable.reach.builds):
        found: State = encode(dict(state), "state")
    return found


def _check_inputs(new: Version, nodes: Collection[str], recorded: State) -> None:
    """Check that the due nodes accept the state in the form in which LangGraph passes it to them."""
    for name in nodes:
        node = new.graph.nodes[name]
        if node.mapper is None or not isinstance(node.channels, list):
            continue
        with building(new.durable.reach.builds):
            state = decode(recorded)
        try:
            node.mapper({key: state[key] for key in node.channels if key in state})
        except Exception as error:
            raise MigrationError(
                f"The node {name} of {_named(new)} does not take the state: {brief(error)}",
                hint="Migration(state=...) has to give a state that the new graph's schema takes.",
            ) from error


def _function(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}:{name}"


def _named(version: Version) -> str:
    return f"{version.ref.graph_id} {version.ref.version} ({version.ref.fingerprint[:8]})"
