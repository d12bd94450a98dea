"""What the package says of a log, as JSON: written down by the earlier commit, asked again by later ones."""

from __future__ import annotations

import dataclasses
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from noesium_stream.agent import BaseGraphicAgent, catalogue_of
from noesium_stream.client import Client, RunInfo
from noesium_stream.client.checkpoint_manager import CheckpointManager
from noesium_stream.client.operate.dead_letters import dead_letters
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.event import Catalogue
from noesium_stream.kernel import LogCheckpointer
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log import EventLog
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.load import load_projection
from tests.data.earlier_log.agents import AGENTS, GRAPHS, OTHER_VERSIONS, TALK, Facts
from tests.data.earlier_log.nodes import Mood, Place, Said

ENDED = ("completed", "failed", "cancelled", "expired")
PROJECTIONS = ("execution", "index", "facts")


def known_events() -> Catalogue:
    """The standard events, those of the agents, and the facts that they read."""
    catalogue = catalogue_of([*AGENTS.values(), *OTHER_VERSIONS])
    catalogue.register(Said)
    return catalogue


NEW_FIELDS = {
    "PendingApproval": ("minimum", "approved_by"),
    "EffectState": ("due_ms", "fingerprint"),
    "RunState": ("awaited",),
}
"""Fields of rows that the earlier commit did not have."""


def earlier_label(label: str) -> str:
    """A label as the earlier commit had it: none for an input without a text, now shown by its fields."""
    return "" if re.match(r"[a-z]+=", label) else label


def plain(value: Any) -> Any:
    """A value as JSON that shows its Python type."""
    if isinstance(value, BaseMessage):
        return [f"message {value.type}", value.id, value.content, plain(value.additional_kwargs)]
    if isinstance(value, BaseModel):
        return [type(value).__name__, {name: plain(item) for name, item in value}]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        new = NEW_FIELDS.get(kind, ())
        names = [field.name for field in dataclasses.fields(value) if field.name not in new]
        found = {name: plain(getattr(value, name)) for name in names}
        return [kind, {**found, "label": earlier_label(found["label"])} if "label" in found else found]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return [type(value).__name__, sorted(map(plain, value))]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum | Decimal | datetime | date | timedelta | bytes):
        return [type(value).__name__, str(value)]
    return value


def target_of(log: EventLog, agent_type: str, version: str | None) -> ReplayTarget:
    """The code of a run: of its version, else of the newest one."""
    kinds = [*OTHER_VERSIONS, AGENTS[agent_type]]
    same = [kind for kind in kinds if (kind.agent_type, kind.version) == (agent_type, version)]
    kind = same[0] if same else AGENTS[agent_type]
    assert issubclass(kind, BaseGraphicAgent)
    return agent_target(kind, log)


WORDS = {"deferred": "parked", "stranded": "parked"}
"""The earlier commit's word for statuses that have words of their own by now."""


def in_earlier_words(value: Any) -> Any:
    """A value with the statuses of its runs in the words of the earlier commit."""
    if isinstance(value, dict):
        return {
            name: WORDS[part]
            if name == "status" and part in ("deferred", "stranded")
            else in_earlier_words(part)
            for name, part in value.items()
        }
    return [in_earlier_words(part) for part in value] if isinstance(value, list) else value


def status_of(info: RunInfo) -> str:
    """The status of a run in the words of the earlier commit, which did not say that one waits."""
    if info.status == "waiting":
        return "requested" if info.started_ms is None else "running"
    return WORDS.get(info.status, info.status)


async def runs_of(client: Client, *, states: bool) -> dict[str, Any]:
    """Each run: how it stands, what came of it, how many events and steps it has, and what a replay says."""
    found: dict[str, Any] = {}
    for info in await client.list_runs():
        run = client.run_handle(info.agent_type, info.run_id)
        events = [event.event_type async for event in run.events(follow=False)]
        said: dict[str, Any] = {
            "agent": info.agent_type,
            "version": info.agent_version,
            "status": status_of(info),
            "label": earlier_label(info.label),
            "result": info.result,
            "error": info.error,
            "reason": info.reason,
            "parent": info.parent_run_id,
            "events": len(events),
            "steps": events.count("kernel.node.completed"),
        }
        if "run.started" in events:
            verdict = await verify(run, target_of(client.log, info.agent_type, info.agent_version))
            said["replay"] = [verdict.steps, verdict.status, str(verdict.difference or "as recorded")]
        if states and info.agent_type in GRAPHS and "run.started" in events:
            manager = CheckpointManager(GRAPHS[info.agent_type], client.log, info.agent_type)
            last = int((await manager.latest(run.id)).rpartition("/")[2])
            said["states"] = {
                str(step): plain(await manager.load(f"{run.id}/{step}")) for step in range(last + 1)
            }
        found[info.run_id] = said
    return found


async def projections_of(log: EventLog, folder: Path | None = None, report: Any = None) -> dict[str, Any]:
    """All rows of the projections; `folder` holds states to go on from, `report` hears of unused ones."""
    with ProjectionEngine(log, folder, report=report or (lambda text: None)) as engine:
        found: dict[str, Any] = {}
        for name in PROJECTIONS:
            engine.register(name, Facts() if name == "facts" else load_projection(name))
            await engine.catch_up(name)
            found[name] = {key: in_earlier_words(plain(row)) for key, row in engine.scan(name)}
        return found


async def records_of(log: EventLog) -> dict[str, dict[str, int]]:
    """Event types of each topic, counted."""
    found: dict[str, dict[str, int]] = {}
    for info in await log.topics():
        counts: dict[str, int] = {}
        async for record in log.read(info.name, {}, until=await log.end(info.name)):
            counts[record.event_type] = counts.get(record.event_type, 0) + 1
        found[info.name.partition(".")[2]] = dict(sorted(counts.items()))
    return found


async def letters_of(log: EventLog) -> list[list[str | None]]:
    """Dead letters of agents' inboxes."""
    return [[one.agent_type, one.event_type, one.key, one.status] for one in await dead_letters(log)]


async def threads_of(log: EventLog) -> list[Any]:
    """The states of the checkpointer's thread, the newest first."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=[Mood, Place])
    graph = TALK.compile(checkpointer=LogCheckpointer(log, serde=serde))
    config: Any = {"configurable": {"thread_id": "talk"}}
    return [[list(state.next), plain(state.values)] async for state in graph.aget_state_history(config)]


async def questions_of(client: Client) -> list[list[str]]:
    """What people are asked."""
    return sorted([one.agent_type, one.run_id, str(one.question)] for one in await client.approvals())


async def generations_of(client: Client) -> list[list[Any]]:
    """The generations of agents' topics: number, partitions, open runs."""
    return sorted(
        [one.agent_type, one.generation, one.partitions, one.open_runs] for one in await client.generations()
    )


async def described(log: EventLog) -> dict[str, Any]:
    """What is written down of a log."""
    rows = await projections_of(log)
    embedded = log.url.startswith("sqlite:")
    async with Client(log) as client:
        return {
            "runs": await runs_of(client, states=embedded),
            "records": await records_of(log),
            "facts": rows["facts"],
            "execution": rows["execution"] if embedded else statuses_of(rows["execution"]),
            "letters": await letters_of(log),
            "questions": await questions_of(client),
            "generations": await generations_of(client),
            "threads": await threads_of(log) if embedded else [],
        }


def statuses_of(execution: dict[str, Any]) -> dict[str, str]:
    """Of the rows of runs how they stand."""
    return {key: row[1]["status"] for key, row in execution.items() if not key.startswith("agent/")}
