"""Goals: plans a release, plans again when its test fails, and is blocked until somebody sends the key.

    noesium worker agents.examples.release
    noesium goals --tree
    noesium signal RUN key '"4711"'

The guide `goals` starts a run of it, and says what a node can do with goals.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from noesium_stream import BaseGraphicAgent, current_step


class Release(TypedDict, total=False):
    """A release; `broken` says that its first test fails."""

    version: str
    broken: bool
    key: str


class Releaser(BaseGraphicAgent):
    """Works on the goals of a release until all of them are reached."""

    agent_type = "releaser"

    def get_state_class(self) -> type[Release]:
        """See `Release`."""
        return Release

    def _build_graph(self) -> StateGraph[Any]:
        graph = StateGraph(Release)
        graph.add_node("plan", self.plan)
        graph.add_node("work", self.work)
        graph.add_node("publish", self.publish)
        graph.add_edge(START, "plan")
        graph.add_edge("plan", "work")
        return graph

    def plan(self, state: Release) -> dict[str, Any]:
        """Set the goals: each of them waits for the one before it."""
        whole = self.goals.add(f"Release {state['version']}", id="release")
        build = self.goals.add("Build it", parent=whole, id="build")
        test = self.goals.add("Test it", parent=whole, depends_on=[build], id="test")
        self.goals.add("Publish it", parent=whole, depends_on=[test], id="publish")
        return {}

    def work(self, state: Release) -> Command[Literal["work", "publish"]]:
        """Work on the next goal that waits for nothing."""
        goal = self.goals.start(self.goals.ready()[0])
        if goal.id == "publish":
            self.goals.block(goal, "the key of the release is missing")
            return Command(goto="publish")
        if goal.id == "test" and state.get("broken"):
            self.goals.fail(goal, "a test fails")
            self.plan_again()
        else:
            self.goals.complete(goal)
        return Command(goto="work")

    def plan_again(self) -> None:
        """Put another way in the place of the failed one, for each goal that cannot be reached by it."""
        for stuck in self.goals.tree().stuck():
            mend = self.goals.add("Mend it", parent="release", id="mend")
            again = self.goals.add("Test it again", parent="release", depends_on=[mend], id="test-again")
            self.goals.release(stuck, of="test")
            self.goals.depend(stuck, on=again)

    async def publish(self, state: Release) -> Command[Any]:
        """Wait for the key; the goal can go on with it."""
        key = await current_step().signal("key")
        self.goals.unblock("publish", "the key is there")
        self.goals.complete("publish", {"key": key})
        self.goals.complete("release")
        return Command(goto=END, update={"key": key})


AGENT = Releaser
