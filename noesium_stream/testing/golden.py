"""Golden histories: runs that were recorded once and are replayed against today's code.

A case describes how to record a history; it is a JSON file `NAME.case.json` beside `NAME.history.jsonl`:

    {"graph": "agents.triage:Triage",                the agent or the graph to run
     "input": {"ticket": 7},
     "options": {},                                   the agent's
     "signals": [["go", true]],                       sent as soon as the run exists
     "answers": [{"approved": true, "value": 3}],     to its questions, one after the other
     "effects": {"refund": ["done"]},                 results of effects; others are performed
     "capabilities": {"corpus.search": [{...}]},      answers of other agents
     "until": "approval.requested"}                   stop recording there; default: at the end

Only `graph` is needed. Recording takes place on `memory://` under a virtual clock, so that the same code
records the same file. A history without a case (copied from elsewhere) is only replayed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.agent.load import load_agent
from noesium_stream.capabilities.version import in_range
from noesium_stream.client.operate.replay_target import load_target
from noesium_stream.errors import CheckpointError, ConfigError, RehearsalError
from noesium_stream.kernel.recording.recorded_run import RecordedRun, dump_history, load_history
from noesium_stream.kernel.verify.verifier import Verdict, verify_run
from noesium_stream.log import open_log
from noesium_stream.testing.rehearsal import Rehearsal
from noesium_stream.worker.runs.fork_history import read_recorded

HISTORY: Final = ".history.jsonl"
CASE: Final = ".case.json"
_KEYS: Final = frozenset(
    {"graph", "input", "options", "signals", "answers", "effects", "capabilities", "until"}
)


def read_case(path: Path) -> dict[str, Any]:
    """Read a case file.

    Raises:
        ConfigError: it is not a JSON object, has an unknown key, or does not name the code to run.
    """
    try:
        case = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} is no JSON: {error}.") from error
    if not isinstance(case, dict) or "graph" not in case:
        raise ConfigError(f"{path.name} does not say what runs.", hint='Give "graph": "MODULE:NAME".')
    unknown = sorted(case.keys() - _KEYS)
    if unknown:
        raise ConfigError(
            f"{path.name} has {unknown[0]!r}, which no case has.", hint=f"Known: {sorted(_KEYS)}"
        )
    return case


async def record_case(
    case: dict[str, Any], disturb: Callable[[Rehearsal], None] = lambda rehearsal: None
) -> RecordedRun:
    """Run a case and return its history.

    Args:
        case: as returned by `read_case`.
        disturb: called with the rehearsal before the run starts; may arm crashes.

    Raises:
        AgentLoadError: the graph cannot be imported.
        ConfigError: the graph's state does not accept the input, or the run does not ask the questions that
            the case answers.
        NoesiumError: the run cannot be executed.
    """
    kind = load_agent(case["graph"])
    if not issubclass(kind, BaseGraphicAgent):
        raise ConfigError(f"{case['graph']} has no graph.")
    given = case.get("input") or {}
    kind.check_input(given)
    options = kind.Options.model_validate(case.get("options") or {})
    rehearsal = Rehearsal(
        kind, options=options, effects=case.get("effects"), capabilities=case.get("capabilities")
    )
    async with rehearsal:
        for event in kind.events:
            rehearsal.log.catalogue.register(event)
        disturb(rehearsal)
        run = await rehearsal.start(given)
        for name, value in case.get("signals") or ():
            await run.signal(name, value)
        for number, answer in enumerate(case.get("answers") or (), 1):
            try:
                await run.answer(answer.get("value"), approved=answer.get("approved", True))
            except RehearsalError as error:
                info = await run.info()
                ended = info.status if info.error is None else f"{info.status}: {info.error}"
                raise ConfigError(
                    f"The case answers question {number}, and the run ended without asking it ({ended}).",
                    hint="Take answers out of the case, or mend what the run does.",
                ) from error
        if case.get("until"):
            await run.wait_for(case["until"])
        else:
            async for _ in run.events():
                pass
        return await read_recorded(rehearsal.log, kind.agent_type, run.id, case["graph"])


def write_history(path: Path, run: RecordedRun) -> None:
    """Write a history file."""
    path.write_text(dump_history(run), encoding="utf-8")


def read_history(path: Path) -> RecordedRun:
    """Read the run of a history file.

    Raises:
        CheckpointError: it is not a history, or does not name its code.
        EventValidationError: an event in it is malformed.
    """
    run = load_history(path.read_text(encoding="utf-8"), path.name)
    if run.graph is None:
        raise CheckpointError(f"{path.name} does not say what replays it.", hint='Its head has no "graph".')
    return run


async def replay_history(run: RecordedRun, options: dict[str, Any] | None = None) -> Verdict:
    """Replay a history against the code that it names.

    Raises:
        AgentLoadError: the code cannot be imported.
    """
    log = await open_log("memory://")
    try:
        return await verify_run(load_target(run.graph or "", log, options), run, in_range)
    finally:
        await log.close()
