"""Agents as programs (RFC-1001 §11, RFC-1002): type, version, graph, and capabilities for others."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, get_type_hints

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel

from noesium_stream.agent.capability import Functions, marked_in, offered_node
from noesium_stream.agent.compiling import AnyGraph, compiled
from noesium_stream.agent.findings import Findings
from noesium_stream.agent.own_toolbox import outside_home, own_toolbox
from noesium_stream.capabilities.capability_set import CapabilitySet
from noesium_stream.clock import Clock
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.rules.call_limits import MAX_CALLS, MAX_DEPTH, MAX_OPEN_CALLS, CallLimits
from noesium_stream.event.standard import Capability
from noesium_stream.event.trust.budget import Budget, least
from noesium_stream.event.trust.policy import Policy
from noesium_stream.goals import Goals
from noesium_stream.kernel import Durability, DurableGraph, graph_ref
from noesium_stream.kernel.callable_reference import Undo
from noesium_stream.kernel.compensation.saga import on_failure_of
from noesium_stream.kernel.migration.migration import Migration, Migrations
from noesium_stream.kernel.migration.segment import RunSegments
from noesium_stream.kernel.state.typed_json import readable
from noesium_stream.llm import JournaledLLM, load_model
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import task_capability
from noesium_stream.memory import LogStore, MemoryManager, memory_of
from noesium_stream.tool.context import Mode
from noesium_stream.tool.in_graph.adopt import adopt_tools
from noesium_stream.tool.toolbox import AgentToolbox


class NoOptions(BaseModel):
    """Options of agents that have none."""


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Resources that a worker process gives its agents.

    `progress` takes one line for people. `llm_config` has the sampling settings of the model that the options
    name (see `AgentConfig`). `policy` says who may ask what; None: everybody everything.
    """

    home: Path
    log: EventLog
    clock: Clock
    agent_ref: AgentRef
    progress: Callable[[str], None]
    llm_config: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy | None = None


class BaseAgent(ABC):
    """An agent type; instances live in worker processes, `agent_type` names it for good.

    Class attributes:
        agent_type: lower-case name; topics contain it.
        version: semantic version of the agent; runs are pinned to it.
        Options: a pydantic model; its fields become options of `noesium run` and `noesium worker`.
        capabilities: the capabilities that it offers to other agents; of a `BaseGraphicAgent` with those of
            its methods that are marked by `@capability`.
        companions: agent modules that `noesium run` also starts on an embedded log.
        events: its own event types.
    """

    agent_type: ClassVar[str]
    version: ClassVar[str] = "1.0.0"
    Options: ClassVar[type[BaseModel]] = NoOptions
    capabilities: ClassVar[tuple[Capability, ...]] = ()
    companions: ClassVar[tuple[str, ...]] = ()
    events: ClassVar[tuple[type[DomainEvent], ...]] = ()

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        self._options = options
        self.context = context
        model = getattr(options, "model", None)
        self.llm: JournaledLLM | None = None
        if model:
            self.llm = JournaledLLM(load_model(model, context.llm_config))
        self._memory: MemoryManager | None = None

    @property
    def memory(self) -> MemoryManager:
        """What the agent remembers (RFC-0004 §5): by default in its own scope, `agent:TYPE`."""
        if self._memory is None:
            context = self.context
            self._memory = memory_of(
                context.log,
                context.home,
                context.agent_ref,
                f"agent:{self.agent_type}",
                clock=context.clock,
                report=context.progress,
            )
        return self._memory

    @property
    def goals(self) -> Goals:
        """The goals of the run whose node asks (RFC-1001 §5, `goalith`)."""
        return Goals()

    async def start(self) -> None:
        """Prepare what runs need; called before the first run in this process."""
        return

    async def stop(self) -> None:
        """Release resources; called after the last run in this process."""
        return


class BaseGraphicAgent(BaseAgent):
    """An agent whose runs execute a LangGraph graph.

    It builds the graph in `_build_graph`. Without one, an agent that has methods marked by `@capability` has
    a graph in which each run calls one of them.

    Class attributes:
        max_supersteps: LangGraph's `recursion_limit`; a run that needs more fails with a clear error.
        segment_steps: supersteps after which a run goes on in a new segment; its next owner reads
            nothing of those before. None: a run is one segment.
        durability: when a step is on the log; see `Durability` for the guarantees of each choice.
        execution_mode: the mode of the nodes: STRICT, PRAGMATIC or SANDBOX (RFC-1001 §12.3).
        on_failure: the last compensation of a run that fails or is cancelled, after its parts are undone: a
            function, or the name of one or of a compiled graph (see `kernel_node(compensate=...)`). It gets
            the run's input and the cause of its end: `input`, `cause` ("failed" or "cancelled"), `error_type`
            and `message`; a graph as its first state, a function as one dict.
        max_calls: calls of other agents that a run may make.
        max_open_calls: of these, the ones that may wait for an answer at the same time.
        max_call_depth: how many runs may be above a run that another one has called.
        tasks: ids of capabilities, among those that it offers, whose tasks its workers take from any agent
            (see `Step.request_task`).
        migrations: older versions of the graph, oldest first, whose open runs are moved to this one.
        tools: what its nodes call with `Step.tool`: functions, `AtomicTool`s, toolkits, tools of LangChain,
            MCP servers.
        skills: folders with a SKILL.md, beside the agent's module or absolute.
        mode: the most that it does with its tools: `ask`, `plan`, `act` or `auto` (see `Mode`); a policy, and
            a run, may say less.
        ask_before: names of tools before which mode `act` asks a person, though they are safe to repeat, such
            as `write_file`.
        permissions: what its tools may do at most; None: what the policy grants. Without a policy they are
            what it is granted.
        workspace: the folder that its tools see, relative to the working directory of the process; the
            settings' `home` may not be in it. None: one of its own under `home`.
        contents: where large results of tools are set aside: a folder, or `s3://BUCKET/PATH` for workers on
            several machines; None: a folder of its own under the settings' `home`.
        budget: what a run may spend on models, with the runs that it calls; a policy or
            a run may say less.
    """

    max_supersteps: ClassVar[int] = 1_000
    segment_steps: ClassVar[int | None] = None
    durability: ClassVar[Durability] = Durability.ASYNC
    execution_mode: ClassVar[ExecutionMode] = ExecutionMode.PRAGMATIC
    on_failure: ClassVar[Undo | None] = None
    max_calls: ClassVar[int] = MAX_CALLS
    max_open_calls: ClassVar[int] = MAX_OPEN_CALLS
    max_call_depth: ClassVar[int] = MAX_DEPTH
    tasks: ClassVar[tuple[str, ...]] = ()
    migrations: ClassVar[Sequence[Migration]] = ()
    tools: ClassVar[Sequence[Any]] = ()
    skills: ClassVar[Sequence[str]] = ()
    mode: ClassVar[str] = Mode.ACT
    ask_before: ClassVar[Sequence[str]] = ()
    permissions: ClassVar[Sequence[str] | None] = None
    workspace: ClassVar[str | None] = None
    contents: ClassVar[str | None] = None
    budget: ClassVar[Budget | None] = None
    _declared: ClassVar[tuple[Capability, ...]] = ()
    _functions: ClassVar[Functions]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "capabilities" in vars(cls):
            cls._declared = vars(cls)["capabilities"]
        marked = marked_in(cls)
        agent_type = getattr(cls, "agent_type", None)
        if not marked or agent_type is None:
            return
        build = cls._build_graph
        if getattr(build, "__isabstractmethod__", False) or build is _graph_of_functions:
            cls._functions = Functions(agent_type, marked)
            offered = cls._functions.capabilities
            for name, function in _OF_FUNCTIONS.items():
                setattr(cls, name, function)
        else:
            offered = tuple(offered_node(function, agent_type) for function in marked.values())
        cls.capabilities = tuple(CapabilitySet((*cls._declared, *offered)))

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        self._compiled: CompiledStateGraph[Any, Any, Any, Any] | None = None
        self._durable: DurableGraph | None = None
        self._toolbox: AgentToolbox | None = None
        self._adopted = False
        self._versions: Migrations | None = None

    @abstractmethod
    def get_state_class(self) -> type[Any]:
        """The graph's state class (RFC-1002)."""

    @abstractmethod
    def _build_graph(self) -> AnyGraph:
        """Build the graph without compiling it (RFC-1001 §11.3); a compiled one is taken, too."""

    @property
    def graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        """The compiled graph, built once per agent."""
        if self._compiled is None:
            built = compiled(self.agent_type, self._build_graph, LogStore(lambda: self.memory))
            self._compiled = self._compiled or built  # it may have asked for the tools, and they for it
        return self._compiled

    @property
    def durable(self) -> DurableGraph:
        """The graph wrapped for journaled execution, created once."""
        if self._durable is None:
            self._durable = DurableGraph(
                self.graph,
                durability=self.durability,
                mode=self.execution_mode,
                owner=type(self),
                toolbox=self.toolbox,
            )
        return self._durable

    @property
    def toolbox(self) -> AgentToolbox | None:
        """Its tools and those of its graph, with the executor that calls them; None: it has none.

        Raises:
            ConfigError: two tools have the same name, one is no valid tool, or the home is in its workspace.
            KernelError: the graph has a `ToolNode` of a release of LangGraph that is not known.
        """
        if self.tools or self.skills:
            self._own_toolbox()
        if not self._adopted:
            self._adopted = True
            adopt_tools(self.graph, self._own_toolbox)
        return self._toolbox

    def _own_toolbox(self) -> AgentToolbox:
        if self._toolbox is None:
            self._toolbox = own_toolbox(
                type(self),
                self.tools,
                workspace=self._workspace(),
                contents=self.contents or self.context.home / "contents" / self.agent_type,
                policy=self.context.policy,
            )
        return self._toolbox

    def _workspace(self) -> Path:
        if self.workspace is not None:
            return outside_home(self.workspace, self.context.home, self.agent_type)
        return self.context.home / "workspaces" / self.agent_type

    @property
    def call_limits(self) -> CallLimits:
        """The limits of its runs' calls: of other agents, of models, and of calls of it."""
        policy = self.context.policy
        said: Budget | None = None
        if policy is not None:
            own = policy.agents.get(self.agent_type) or policy.agents.get("*")
            said = None if own is None else own.budget
        return CallLimits(self.max_call_depth, self.max_calls, self.max_open_calls, least(said, self.budget))

    @property
    def declared_on_failure(self) -> str | None:
        """The reference by which another process finds `on_failure`; None if there is none.

        Raises:
            KernelError: it cannot be found by its name, does not accept its argument, or is not a graph in
                STRICT mode.
            GraphError: it is a graph that cannot run in STRICT mode.
        """
        undo = type(self).on_failure  # from the class: a module's function must not become a method
        if undo is None:
            return None
        return on_failure_of(
            undo, self, self.durable.reach, f"the agent {self.agent_type}", self.execution_mode
        )

    @property
    def versions(self) -> Migrations:
        """This version of the graph, and the versions from which its runs may be migrated.

        Raises:
            ConfigError: `migrations` names nodes that its graphs do not have, or one graph twice.
            KernelError, GraphError: as `declared_on_failure`.
        """
        if self._versions is None:
            ref = graph_ref(self.graph, self.agent_type, self.version)
            self._versions = Migrations(self.migrations, ref, self.durable)
            _ = self.declared_on_failure  # so that its name, read from a log, is known
        return self._versions

    @property
    def segments(self) -> RunSegments | None:
        """How its runs are divided into segments; None: they are not.

        Raises:
            ConfigError: `segment_steps` is less than 2.
        """
        if self.segment_steps is None:
            return None
        if self.segment_steps < 2:
            raise ConfigError(
                f"{self.agent_type} has segment_steps = {self.segment_steps}.",
                hint="A segment has at least 2 supersteps; some hundred are a good number.",
            )
        return RunSegments(self.versions.versions[-1], self.segment_steps)

    def check_tasks(self) -> None:
        """Check that the agent can do the tasks that it takes.

        Raises:
            ConfigError: `tasks` names a capability that it does not offer, or one that makes no topic name.
        """
        offered = [one.id for one in self.capabilities]
        for capability_id in self.tasks:
            task_capability(capability_id)
            if capability_id not in offered:
                near = difflib.get_close_matches(capability_id, offered, 1) or offered[:1]
                raise ConfigError(
                    f"{self.agent_type} takes tasks of {capability_id!r}, which it does not offer.",
                    hint=f"Did you mean {near[0]!r}?" if near else "Offer it by @capability, too.",
                )

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        """The first state of a run, from its input; `capability_id` is set for a delegated run."""
        return input

    def result(self, state: dict[str, Any]) -> Any:
        """The run's result, from the final state; it must have a JSON form.

        By default the state itself: dates and durations as ISO 8601, decimals and UUIDs as strings, sets as
        sorted lists, models and dataclasses as objects.
        """
        return readable(state)

    @classmethod
    def input_from_question(cls, question: str, options: BaseModel) -> dict[str, Any]:
        """The input of a run from a question on the command line.

        Raises `ConfigError` if the question is not a valid input.
        """
        return {"question": question}

    @classmethod
    def check_input(cls, input: dict[str, Any]) -> None:
        """Refuse an invalid input; called before a run is started from the command line.

        By default, where the input is the first state, an input with a key that the state class does not have
        is invalid.

        Raises:
            ConfigError: the message says what is wrong with it.
        """
        if cls.initial_state is not BaseGraphicAgent.initial_state:
            return
        try:
            # There is no instance yet; skip a class whose state depends on its options.
            state = object.__new__(cls).get_state_class()
            keys = get_type_hints(state)
        except (AttributeError, NameError, TypeError):
            return
        if keys:
            check_keys(state.__name__, keys, input)

    @classmethod
    def check_start(cls, input: dict[str, Any], options: BaseModel, home: Path) -> None:
        """Refuse an input that an agent with these options cannot work on; by default, none.

        `noesium run` calls it, after `check_input`, before it starts a run that its own process works on;
        elsewhere the options are those of the workers. `home` is the settings' home.

        Raises:
            ConfigError: the message says what is missing.
        """


def _graph_of_functions(agent: BaseGraphicAgent) -> StateGraph[Any, Any, Any, Any]:
    return agent._functions.graph(agent)


def _state_of_functions(agent: BaseGraphicAgent) -> type[Any]:
    state: type[Any] = agent._functions.state
    return state


def _first_of_functions(
    agent: BaseGraphicAgent, input: dict[str, Any], capability_id: str | None
) -> dict[str, Any]:
    return agent._functions.first_state(input, capability_id)


def _result_of_functions(agent: BaseGraphicAgent, state: dict[str, Any]) -> Any:
    return readable(state["result"])


_OF_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "_build_graph": _graph_of_functions,
    "get_state_class": _state_of_functions,
    "initial_state": _first_of_functions,
    "result": _result_of_functions,
}
"""The methods of an agent whose graph is made of its marked methods."""


def check_keys(state: str, known: Collection[str], given: Collection[str]) -> None:
    """Refuse keys that a state does not have: they would be dropped, and most are typing errors.

    Raises:
        ConfigError: names the first such key, and the closest valid one.
    """
    unknown = sorted(key for key in given if key not in known)
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        raise ConfigError(
            f"The input has {', '.join(map(repr, unknown))}, which the state {state} does not have.",
            hint=f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(sorted(known))}.",
        )


class BaseResearcher(BaseGraphicAgent):
    """Research (RFC-1002): queries, sources, a bounded reflection loop, an answer with citations.

    The result is a dict with `answer` (text), `citations` and `sources` (lists).
    """

    max_refinements: ClassVar[int] = 1

    @property
    def findings(self) -> Findings:
        """What it has found in other runs."""
        return Findings(self.memory)
