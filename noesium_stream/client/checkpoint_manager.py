"""`CheckpointManager`: a run's checkpoints by their ids (RFC-1001 §7.3, RFC-0003 §10).

Decision record: RFC-1001 gives the manager a store of checkpoints beside the event store. Here the journal is
the only source of truth. A checkpoint is the fold of a run's deltas up to a superstep. The run's owner notes
it (`kernel.checkpoint.created`), and it is folded when a caller asks for it. So `load` and `replay_from` only
read. `save` stores no state: it makes all that the run has done so far durable, and returns the id of the
checkpoint. To go on from another state, fork the run (`noesium fork`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.agent import AnyGraph, agent_from_graph
from noesium_stream.client.client import Client
from noesium_stream.client.operate.replay import recording, state_at
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import CheckpointError, RunNotFoundError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.kernel.reach import Reach
from noesium_stream.kernel.recording.fork import last_step
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.state.typed_json import building, decode, encode
from noesium_stream.kernel.step.step import current_step
from noesium_stream.kernel.verify.difference import first_difference
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log.port import EventLog

_ID: Final = re.compile(r"([^/]+)/(0|[1-9][0-9]{0,8})")


class CheckpointManager:
    """The checkpoints of one graph's runs on a log.

    A checkpoint's id is `RUN/STEP`: the state after that superstep; step 0 is the initial state of the run. A
    state is a dict of the graph's channels; its values have the types that nodes see.

    Args:
        graph: a LangGraph graph, compiled or not; its code folds the recorded deltas.
        log: an open log.
        agent_ref: the agent type of the graph's runs, or an `AgentRef` with that type.
    """

    def __init__(self, graph: AnyGraph, log: EventLog, agent_ref: AgentRef | str) -> None:
        agent_type = agent_ref if isinstance(agent_ref, str) else agent_ref.agent_type
        self._client = Client(log)
        self._target: ReplayTarget = agent_target(agent_from_graph(graph, agent_type), log)

    async def load(self, checkpoint_id: str) -> dict[str, Any]:
        """Return the state at a checkpoint; no node runs.

        Raises:
            CheckpointError: the id is not a checkpoint's, or there is no such run; or the run belongs to
                another agent, has not completed that step, or was not made with this graph.
        """
        recorded, step = await self._find(checkpoint_id)
        return await self._state(recorded, step)

    async def replay_from(self, checkpoint_id: str) -> dict[str, Any]:
        """Return the run's newest state, folded from the checkpoint on; no node runs.

        It is the state after the last superstep that the run has completed (see `latest`).

        Raises:
            CheckpointError: as `load`.
        """
        recorded, _ = await self._find(checkpoint_id)
        return await self._state(recorded, last_step(recorded))

    async def latest(self, run_id: str) -> str:
        """Return the id of a run's newest checkpoint.

        Raises:
            CheckpointError: there is no such run, or it belongs to another agent.
        """
        recorded, _ = await self._find(f"{run_id}/0")
        return f"{recorded.run_id}/{last_step(recorded)}"

    async def save(self, state: Mapping[str, Any] | None = None, node_id: str | None = None) -> str:
        """Make a save point in an async node: return when all that the run has done is on the log.

        With the durability ASYNC or EXIT, steps may be repeated after a crash; steps before a save point are
        not. The result of the calling node is not part of the save point.

        Args:
            state: the node's input or a part of it; a state that differs is refused.
            node_id: name of the calling node; another name is refused.

        Returns:
            The id of the checkpoint before the node.

        Raises:
            CheckpointError: the caller is not a node of this process, the node has another name, or its input
                differs from `state`.
            FencedError, CommitUnknownError: this process does not own the run any more.
        """
        run = current_run()
        if run is None or not run.on_its_loop():
            raise CheckpointError(
                "A run's checkpoints are made while it is executed, and no node of a run calls this.",
                hint="Await `save` in an async node. A run from a state of your own is a fork: "
                "`noesium fork RUN --at STEP --set PATH=VALUE --perform`.",
            )
        step = current_step()
        if node_id is not None and node_id != step.node:
            raise CheckpointError(
                f"The node {step.node} cannot save a checkpoint of the node {node_id}.",
                hint="Leave the name out: it is the node that calls.",
            )
        if state is not None:
            _refuse_other(run.state(), encode(dict(state), "state"), step.node)
        await run.settled()
        return f"{step.run_id}/{run.reached_step}"

    async def _find(self, checkpoint_id: str) -> tuple[RecordedRun, int]:
        found = _ID.fullmatch(checkpoint_id)
        if found is None:
            raise CheckpointError(
                f"{checkpoint_id!r} is no checkpoint's id.",
                hint="It is RUN/STEP, as `kernel.checkpoint.created` has it; RUN/0 is a run's beginning.",
            )
        run_id, step = found[1], int(found[2])
        try:
            run = await self._client.get_run(run_id)
            if run.id != run_id:
                raise RunNotFoundError(f"There is no run {run_id}; did you mean {run.id}?")
            if run.agent_type != self._target.agent_type:
                raise CheckpointError(
                    f"Run {run_id} is one of {run.agent_type}, and these are the checkpoints of "
                    f"{self._target.agent_type}."
                )
            recorded = await recording(run)
        except RunNotFoundError as error:
            raise CheckpointError(str(error.args[0]), hint=error.hint) from error
        last = last_step(recorded)
        if step > last:
            raise CheckpointError(
                f"There is no checkpoint {checkpoint_id}: the run has completed the steps 0 to {last}."
            )
        return recorded, step

    async def _state(self, recorded: RecordedRun, step: int) -> dict[str, Any]:
        found = await state_at(self._target, recorded, step)
        with building(Reach(self._target.graph).builds):
            state: dict[str, Any] = decode(found)
        return state


def _refuse_other(now: Mapping[str, Any], given: Mapping[str, Any], node: str) -> None:
    found = first_difference(now, {**now, **given})
    if found is not None:
        raise CheckpointError(
            f"The node {node} saves a state with another {found[0]} than its run has.",
            hint="A checkpoint holds what nodes returned: return the change, and save in the next node.",
        )
