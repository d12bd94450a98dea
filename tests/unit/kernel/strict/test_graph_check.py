"""STRICT mode asks of a graph that what it does can be told before it runs."""

from __future__ import annotations

import asyncio
import functools
import operator
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableLambda
from langgraph.errors import GraphRecursionError, InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from noesium_stream.errors import GraphError
from noesium_stream.kernel.strict.concurrent_nodes import Choice, Edges, together
from noesium_stream.kernel.strict.graph_check import check_strict, require_strict
from noesium_stream.kernel.strict.written_keys import function_of, written_keys


class State(TypedDict, total=False):
    score: float
    answer: str
    items: Annotated[list[Any], operator.add]


class Scored(TypedDict):
    score: float


def score(state: State) -> Any:
    return {"score": 1.0}


def answer(state: State) -> Any:
    return {"answer": "yes"}


def collect(state: State) -> Any:
    return {"items": [1]}


def anything(state: State) -> Any:
    return state.get("made_elsewhere")


def route(state: State) -> Literal["a", "b"]:
    return "a"


def graph(*edges: tuple[Any, Any], **nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    made = StateGraph(State)
    for name, node in nodes.items():
        made.add_node(name, node)
    for source, target in edges:
        made.add_edge(source, target)
    return made


def problems(made: StateGraph[Any, Any, Any, Any]) -> list[str]:
    return check_strict(made.compile())


def fork(a: Any, b: Any) -> list[str]:
    return problems(graph((START, "a"), (START, "b"), a=a, b=b))


def test_two_branches_that_write_one_key_without_a_reducer_are_named_with_the_key() -> None:
    made = graph((START, "a"), (START, "b"), a=score, b=score)
    [problem] = problems(made)
    assert problem.startswith("a and b may run in the same superstep and both write score without a reducer")
    assert "Annotated[TYPE, reducer]" in problem
    with pytest.raises(InvalidUpdateError):
        made.compile().invoke({})


def test_branches_with_a_reducer_or_with_keys_of_their_own_are_fine() -> None:
    assert fork(collect, collect) == []
    assert fork(score, answer) == []


def test_nodes_that_follow_one_another_may_write_the_same_key() -> None:
    assert problems(graph((START, "a"), ("a", "b"), ("b", END), a=score, b=score)) == []


def test_branches_meet_deeper_down_as_well() -> None:
    nodes = {"a": collect, "b": collect, "c": score, "d": score}
    [problem] = problems(graph((START, "a"), (START, "b"), ("a", "c"), ("b", "d"), **nodes))
    assert problem.startswith("c and d")
    assert problems(graph((START, "a"), (START, "b"), ("a", "c"), ("c", "d"), **nodes)) == []


def test_a_join_waits_for_its_longer_branch_and_plain_edges_do_not() -> None:
    nodes = {"a": collect, "longer": score, "b": answer, "join": score}
    edges = [(START, "a"), (START, "b"), ("a", "longer")]
    assert problems(graph(*edges, (["longer", "b"], "join"), **nodes)) == []
    [problem] = problems(graph(*edges, ("longer", "join"), ("b", "join"), **nodes))
    assert problem.startswith("join and longer")


def test_a_join_goes_on_once_and_its_followers_meet() -> None:
    edges = [(START, "a"), (START, "b"), (["a", "b"], "join"), ("join", "x")]
    assert problems(graph(*edges, a=collect, b=collect, join=score, x=score)) == []
    nodes = {"a": collect, "b": collect, "join": collect, "x": score, "y": score}
    [problem] = problems(graph(*edges, ("join", "y"), **nodes))
    assert problem.startswith("x and y")


def test_a_deferred_node_meets_deferred_ones_only() -> None:
    made = graph((START, "a"), (START, "b"), b=score)
    made.add_node("a", score, defer=True)
    assert problems(made) == []


def test_of_a_routing_function_that_returns_one_target_the_targets_never_meet() -> None:
    made = graph((START, "x"), x=collect, a=score, b=score)
    made.add_conditional_edges("x", route)
    assert problems(made) == []
    made = graph((START, "x"), x=collect, a=score, b=score)
    made.add_conditional_edges("x", lambda state: "a" if state["answer"] else "b", ["a", "b"])
    assert problems(made) == []


def test_of_one_that_may_return_several_they_do() -> None:
    def both(state: State) -> list[str]:
        return ["a", "b"]

    for path in (both, lambda state: state["answer"], lambda state: ["a"]):
        made = graph((START, "x"), x=collect, a=score, b=score)
        made.add_conditional_edges("x", path, ["a", "b"])
        assert [problem[:7] for problem in problems(made)] == ["a and b"]


def test_a_node_whose_writes_cannot_be_told_is_a_problem_beside_others_only() -> None:
    assert problems(graph((START, "a"), ("a", "b"), a=anything, b=anything)) == []
    assert fork(anything, collect) == []
    [problem] = fork(anything, score)
    assert problem.startswith("a may run in the same superstep as b, and its code does not tell")
    assert "perhaps score without a reducer" in problem
    assert "TypedDict" in problem
    first, second = fork(anything, anything)
    assert "perhaps answer and score" in first
    assert second.startswith("b may")


def test_a_return_annotation_says_what_the_code_does_not() -> None:
    def told(state: State) -> Scored:
        return anything(state)  # type: ignore[no-any-return]

    assert fork(told, answer) == []
    assert len(fork(told, score)) == 1


def built_up(state: State) -> Any:
    out: dict[str, Any] = {}
    out["score"] = 1
    if state.get("answer"):
        out.update(answer="x")
    return out


def handed_on(state: State) -> Any:
    out = {"score": 1}
    fill(out)
    return out


def fill(out: dict[str, Any]) -> None:
    out["answer"] = "x"


def changed_within(state: State) -> Any:
    out = {"score": 1}

    def inner() -> None:
        out["answer"] = 2  # type: ignore[assignment]

    inner()
    return out


def aliased(state: State) -> Any:
    out = {"score": 1}
    other = out
    other["answer"] = 2
    return out


def by_helper(state: State) -> Any:
    return score(state) if state else {**answer(state), "items": []}


def changes_its_state(state: State) -> Any:
    state["score"] = 1
    return state


def generator(state: State) -> Any:
    yield {"score": 1}


def nested(state: State) -> Any:
    def unrelated() -> Any:
        return {"answer": 1}

    return {"score": unrelated()}


async def awaited(state: State) -> Any:
    await asyncio.sleep(0)
    return await later(state)


async def later(state: State) -> Any:
    return {"score": 1}


KEY = "score"


@functools.wraps(score)
def decorated(state: State) -> Any:
    return score(state)


class Callable:
    def __call__(self, state: State) -> Any:
        return {"score": 1}

    def method(self, state: State) -> Any:
        return {"score": 1}


@pytest.mark.parametrize(
    ("node", "keys"),
    [
        (score, {"score"}),
        (built_up, {"score", "answer"}),
        (handed_on, None),
        (changed_within, None),
        (aliased, None),
        (by_helper, {"score", "answer", "items"}),
        (changes_its_state, None),
        (generator, None),
        (nested, {"score"}),
        (awaited, {"score"}),
        (decorated, {"score"}),
        (Callable(), {"score"}),
        (Callable().method, {"score"}),
        (functools.partial(score), {"score"}),
        (RunnableLambda(score), {"score"}),
        (lambda state: {KEY: 1}, {"score"}),
        (lambda state: dict(score=1, answer="x"), {"score", "answer"}),
        (lambda state: Scored(score=1), {"score"}),
        (lambda state: None, set()),
        (lambda state: Command(update={"score": 1}, goto="b"), {"score"}),
        (lambda state: [Command(goto="b"), {"answer": 1}], {"answer"}),
        (lambda state: Command(graph=Command.PARENT, update={"score": 1}), None),
        (lambda state: {"score": 1} if state else {"answer": 1}, {"score", "answer"}),
        (lambda state: {**state}, None),
        (eval("lambda state: {'score': 1}"), None),
    ],
)
def test_what_a_node_writes_is_told_from_its_code_or_not_at_all(node: Any, keys: set[str] | None) -> None:
    assert written_keys(function_of(node)) == keys


def test_two_lambdas_on_one_line_are_told_apart() -> None:
    one, other = (lambda state: {"score": 1}), (lambda state: {"answer": 1})
    assert [written_keys(one), written_keys(other)] == [{"score"}, {"answer"}]


def goes_somewhere(state: State) -> Any:
    return Command(goto=state["answer"])


def goes_by_helper(state: State) -> Any:
    return goes_somewhere(state)


def declared(state: State) -> Command[Literal["b"]]:
    return Command(goto="b")


@pytest.mark.parametrize("node", [goes_somewhere, goes_by_helper])
def test_a_command_whose_destinations_are_not_declared_is_refused(node: Any) -> None:
    [problem] = problems(graph((START, "a"), a=node, b=score))
    assert problem.startswith("a goes where its Command says, which is not declared")
    assert "destinations" in problem


def test_a_command_whose_destinations_are_declared_is_fine_and_its_targets_count() -> None:
    assert problems(graph((START, "a"), a=declared, b=score)) == []
    made = graph((START, "a"), ("a", "c"), a=declared, b=score, c=score)
    assert problems(made)[0].startswith("b and c")
    made = graph((START, "a"), b=score, c=score)
    made.add_node("a", goes_somewhere, destinations=("b", "c"))
    assert problems(made)[0].startswith("b and c"), "goto may be a list"
    made = graph((START, "a"), b=score, c=score)
    made.add_node("a", lambda s: Command(goto="b" if s else "c"), destinations=("b", "c"))
    assert problems(made) == []


def test_a_command_to_the_graph_above_is_refused() -> None:
    made = graph((START, "a"), a=lambda state: Command(graph=Command.PARENT, goto="b"))
    assert problems(made)[0].startswith("a sends a Command to another graph")


def test_a_conditional_edge_without_declared_targets_is_refused() -> None:
    made = graph((START, "x"), x=collect, a=score)
    made.add_conditional_edges("x", anything)
    assert problems(made)[0].startswith("the conditional edge anything after x may go anywhere")
    made = graph(x=collect, a=score)
    made.add_conditional_edges(START, anything)
    assert problems(made)[0].startswith("the conditional edge anything after the start may go anywhere")


def test_send_is_refused_in_edges_and_in_nodes() -> None:
    made = graph((START, "x"), x=collect, a=collect)
    made.add_conditional_edges("x", lambda state: [Send("a", n) for n in range(3)], ["a"])
    assert "makes Send" in problems(made)[0]
    made = graph((START, "x"), a=collect)
    made.add_node("x", lambda state: Command(goto=[Send("a", {})]), destinations=("a",))
    assert problems(made) == [problem for problem in problems(made) if problem.startswith("x makes Send")]
    assert problems(made)


def test_graphs_in_the_graph_are_checked_whether_they_are_nodes_or_called_by_one() -> None:
    inner = graph((START, "a"), (START, "b"), a=score, b=score).compile()

    async def call(state: State) -> Any:
        return {"score": (await inner.ainvoke(state))["score"]}

    for node in (inner, call):
        [problem] = problems(graph((START, "sub"), sub=node))
        assert problem.startswith("sub: a and b may run in the same superstep")


def test_a_graph_as_a_node_writes_the_keys_of_its_output() -> None:
    inner = graph((START, "a"), a=collect).compile()
    assert fork(inner, collect) == []
    assert fork(inner, score)[0].startswith("a and b may run in the same superstep and both write score")


def test_an_error_handler_writes_in_the_place_of_its_node() -> None:
    made = graph((START, "a"), (START, "b"), b=score)
    made.add_node("a", collect, error_handler=score)
    assert problems(made)[0].startswith("a and b")


def test_all_problems_are_in_one_error() -> None:
    made = graph((START, "x"), (START, "y"), x=score, y=score)
    made.add_conditional_edges("x", anything)
    with pytest.raises(GraphError, match=r"^The graph cannot run .* 2 problems") as caught:
        require_strict(made.compile())
    assert len(caught.value.problems) == 2
    assert all(problem in caught.value.message for problem in caught.value.problems)
    require_strict(graph((START, "x"), x=score).compile())


def test_a_loop_with_a_fork_is_checked_to_its_end() -> None:
    nodes = {"a": collect, "b": collect, "c": collect, "d": score, "e": score}
    made = graph((START, "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "e"), ("d", "a"), **nodes)
    found = problems(made)
    assert any(problem.startswith("d and e") for problem in found)


NODES = ("a", "b", "c", "d", "e")


@st.composite
def random_graphs(draw: st.DrawFn) -> StateGraph[Any, Any, Any, Any]:
    """Five nodes that write one of two keys, any edges, joins, and conditional edges of one target."""

    def writer(key: str) -> Any:
        return lambda state: {key: 1.0, "items": [1]}

    made = StateGraph(State)
    for name in NODES:
        key, defer = draw(st.sampled_from(["score", "answer"])), draw(st.integers(0, 5)) == 0
        made.add_node(name, writer(key), defer=defer)
    node = st.sampled_from(NODES)
    for target in draw(st.sets(node, min_size=1, max_size=3)):
        made.add_edge(START, target)
    for source, target in draw(st.sets(st.tuples(node, node), max_size=5)):
        made.add_edge(source, target)
    for sources, target in draw(
        st.sets(st.tuples(st.frozensets(node, min_size=2, max_size=3), node), max_size=2)
    ):
        made.add_edge(sorted(sources), target)
    for source, targets in draw(
        st.dictionaries(node, st.lists(node, min_size=1, max_size=3), max_size=2)
    ).items():

        def path(state: State, targets: list[str] = targets) -> str:
            return targets[len(state["items"]) % len(targets)]

        made.add_conditional_edges(source, path, targets)
    return made


@settings(max_examples=250, deadline=None)
@given(random_graphs())
def test_a_graph_without_problems_never_meets_two_writers_when_it_runs(made: Any) -> None:
    compiled = made.compile()
    try:
        compiled.invoke({"items": []}, {"recursion_limit": 8})
    except GraphRecursionError:
        pass
    except InvalidUpdateError:
        assert check_strict(compiled), "LangGraph met two writers that the check had not seen"


NAMES = st.sampled_from(NODES)
CHOICES = st.builds(
    Choice, st.frozensets(NAMES, min_size=1, max_size=3), several=st.booleans(), sure=st.booleans()
)
EDGES = st.builds(
    Edges,
    start=st.just(START),
    choices=st.fixed_dictionaries(
        {START: st.lists(CHOICES, min_size=1, max_size=2)},
        optional={name: st.lists(CHOICES, max_size=2) for name in NODES},
    ),
    joins=st.lists(st.tuples(st.frozensets(NAMES, min_size=2, max_size=3), NAMES), max_size=2),
    deferred=st.frozensets(NAMES, max_size=1),
)


@settings(deadline=None, max_examples=400)
@given(EDGES)
def test_where_there_are_too_many_supersteps_no_pair_is_missing(edges: Edges) -> None:
    assert together(edges) <= together(edges, limit=0)


def test_a_wide_graph_is_checked_in_bounded_time() -> None:
    names = [f"n{i}" for i in range(40)]
    made = graph(*((START, name) for name in names), **dict.fromkeys(names, collect), x=score, y=score)
    for name in names:
        made.add_conditional_edges(name, route, {"a": "x", "b": "y"})
    assert problems(made)[0].startswith("x and y")
