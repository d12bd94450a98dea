"""Questions of runs that other runs have called: where they stand in their tree, and those below a run.

Decision record: a caller's own journal says whom it has called, and only its owner writes that. What a
command says of its caller is what its sender says, and does not count: else anybody could lay a question
under a run whose people answer without a second look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from noesium_stream.client.views.approvals import Approval, PathStep, open_ones, read_questions
from noesium_stream.client.views.tree_reader import TreeMember, TreeReader
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.errors import ApprovalError
from noesium_stream.event.rules.agent_calls import CALLS, caller_of
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog

_ASKED: Final = "approval.requested"
APPROVAL_TYPES: Final = (_ASKED,)
"""Types that a reader of a tree has to read for `questions_below`."""

_MOST_ABOVE: Final = 100


async def waiting_questions(
    log: EventLog, known: Sequence[str], agent_type: str | None = None
) -> Sequence[Approval]:
    """Return the questions of runs of all these agent types, or of one, that wait for answers, oldest first.

    Raises:
        LogUnavailableError, CorruptRecordError
    """
    found: list[Approval] = []
    for kind in known if agent_type is None else (agent_type,):
        found += (await read_questions(log, kind)).all()
    return await with_paths(log, known, open_ones(found))


async def with_paths(log: EventLog, agent_types: Iterable[str], found: Sequence[Approval]) -> list[Approval]:
    """Return the questions with the runs above theirs.

    Raises:
        LogUnavailableError
    """
    if all(question.root_run_id in (None, question.run_id) for question in found):
        return list(found)  # nobody has called their runs
    callers = await _callers(log, agent_types)
    return [replace(question, path=_path(question, callers)) for question in found]


async def _callers(log: EventLog, agent_types: Iterable[str]) -> dict[PathStep, PathStep]:
    """Return the caller of each run that was called, as the callers' journals say."""
    callers: dict[PathStep, PathStep] = {}
    for agent_type in agent_types:
        for generation in await open_generations(log, agent_type):
            until = await log.end(generation.journal)
            async for record in log.read(generation.journal, {}, until=until, types=tuple(CALLS)):
                try:
                    payload = record.unchecked.payload
                    if payload.get("target_agent_type") is None:
                        continue  # a task: who has taken it is not known here
                    child = PathStep(str(payload["target_agent_type"]), str(payload["run_id"]))
                    if caller_of(payload) == record.key != child.run_id:
                        callers.setdefault(child, PathStep(agent_type, record.key))
                except WRONG as error:
                    pass_over(record, error)
    return callers


def _path(question: Approval, callers: dict[PathStep, PathStep]) -> tuple[PathStep, ...]:
    path = [PathStep(question.agent_type, question.run_id)]
    while len(path) < _MOST_ABOVE:
        above = callers.get(path[-1])
        if above is None or above in path:
            break
        path.append(above)
    return tuple(reversed(path))


async def questions_below(log: EventLog, reader: TreeReader) -> list[Approval]:
    """Return the questions of the runs below a run that wait for an answer, or for a worker to accept it.

    Args:
        log: the log.
        reader: of the run's tree, which has read nothing yet.

    Raises:
        LogUnavailableError
    """
    asking: dict[str, TreeMember] = {}
    async with aclosing(reader.read(follow=False)) as records:
        async for member, _, event in records:
            if event.event_type == _ASKED and member.caller is not None:
                asking[member.run_id] = member
    found: list[Approval] = []
    for member in asking.values():
        if member.ended is None:
            path = tuple(PathStep(one.agent_type, one.run_id) for one in member.path)
            questions = (await read_questions(log, member.agent_type, member.run_id)).all()
            found += [replace(question, path=path) for question in questions]
    return open_ones(found)


def choose_below(found: Sequence[Approval], approval_id: str | None, refusal: ApprovalError) -> Approval:
    """Choose the question below a run that an answer is for.

    Args:
        found: the questions below it.
        approval_id: id of the question or a prefix of it; None: there is only one.
        refusal: why the run itself has none.

    Raises:
        ApprovalError: there is none (`refusal`), or there are several.
    """
    wanted = [one for one in found if approval_id is None or one.approval_id.startswith(approval_id)]
    still_open = [one for one in wanted if one.status == "open"]
    if len(still_open) > 1:
        raise ApprovalError(
            f"{len(still_open)} questions are open in runs below {still_open[0].path[0].run_id}: say which.",
            hint="\n".join(f"{one.approval_id}  {one.shown}, run {one.run_id}" for one in still_open),
        )
    if not wanted:
        raise refusal
    return (still_open or wanted)[-1]
