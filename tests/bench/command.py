"""The command of the bench.

    python -m tests.bench log [--events 100000] [--only append,read,...] [--bootstrap HOST:PORT] [--json]
    python -m tests.bench kernel [--nodes 300] [--only chain,history,...] [--json]
    python -m tests.bench projection [--events 100000] [--keys 1000000] [--only fold,...] [--json]
    python -m tests.bench worker [--events 300000] [--runs 20000] [--only handler,graph,...] [--json]
    python -m tests.bench prompt [--repetitions 9] [--json]
    python -m tests.bench delegation [--trips 60] [--callers 1000] [--tokens 300] [--only trip,...] [--json]
    python -m tests.bench tools [--calls 100] [--only calls,judging,choose,sandbox] [--json]
    python -m tests.bench llm [--calls 100] [--json]
    python -m tests.bench memory [--facts 1000000] [--only reads,search,vectors,writes,sessions] [--json]
    python -m tests.bench chat [--turns 10000] [--json]
    python -m tests.bench registry [--events 100000] [--capabilities 10000] [--only fold,...] [--json]
    python -m tests.bench peers --help

Figures are reported, not asserted: the exit code is 0 when all could be measured, 1 when one could not. A run
of everything at full size adds a line to `history.jsonl`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.log.url import parse_url
from tests.bench import (
    append,
    chat,
    delegation,
    kernel,
    llm,
    memory,
    projection,
    projection_state,
    prompt,
    read,
    registry,
    sqlite,
    tail,
)
from tests.bench.harness import HISTORY, Figure, history_line, keep, progress
from tests.bench.projection_settings import ProjectionSettings
from tests.bench.settings import Settings
from tests.bench.tools import calls as tools
from tests.bench.tools.groups import OF_TOOLS
from tests.bench.worker import OF_WORKER
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer, start_kafka

Group = Callable[[Settings, KafkaServer], Awaitable[list[Figure]]]
KernelGroup = Callable[[kernel.KernelSettings], Awaitable[list[Figure]]]
RegistryGroup = Callable[[registry.RegistrySettings], Awaitable[list[Figure]]]
PromptGroup = Callable[[prompt.PromptSettings], Awaitable[list[Figure]]]
ProjectionGroup = Callable[[ProjectionSettings, KafkaServer], Awaitable[list[Figure]]]

ON_KAFKA: dict[str, Group] = {"append": append.measure, "read": read.measure, "tail": tail.measure}
GROUPS = ("append", "read", "sqlite", "tail")
OF_KERNEL: dict[str, KernelGroup] = {
    "chain": kernel.measure_chain,
    "history": kernel.measure_history,
    "beside": kernel.measure_beside,
    "resume": kernel.measure_resume,
    "replay": kernel.measure_replay,
    "waiting": kernel.measure_waiting,
}
OF_PROJECTION: dict[str, ProjectionGroup] = {
    "fold": projection.measure_fold,
    "state": projection_state.measure_state,
}
OF_PROMPT: dict[str, PromptGroup] = {"reading": prompt.measure_reading}
OF_REGISTRY: dict[str, RegistryGroup] = {
    "fold": registry.measure_fold,
    "resolve": registry.measure_resolve,
    "restart": registry.measure_restart,
}


Outcome = tuple[list[Figure], dict[str, str], dict[str, Any], bool]
"""Figures, reasons of what could not be measured by group, the settings, and whether it was a full run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep; the exit code."""
    asked = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="noesium-bench-", dir=asked.folder) as folder:
        figures, failed, described, full = MEASURE[asked.bench](asked, Path(folder))
    line = history_line(figures, {"bench": asked.bench, **described})
    for figure in figures if not asked.json else ():
        print("\n".join(figure.lines()), end="\n\n")
    if asked.json:
        print(json.dumps({**line, "failed": failed}))
    if full or asked.history is not None:
        path = asked.history or HISTORY
        keep(line, path)
        progress(f"kept in {path}")
    return 1 if failed else 0


def _log(asked: argparse.Namespace, folder: Path) -> Outcome:
    groups = [name for name in GROUPS if name in asked.only]
    settings = Settings(folder, asked.events, asked.batch, asked.repetitions, tail_events=asked.tail_events)
    figures, failed, broker = _measure(groups, settings, asked.bootstrap)
    return figures, failed, _described(settings, broker), _is_full(settings, groups, failed)


def _kernel(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = kernel.KernelSettings(folder)
    settings = replace(
        default,
        nodes=asked.nodes,
        repetitions=asked.repetitions,
        turns=asked.turns,
        resumed=asked.resumed,
        replayed=asked.replayed,
        waiting=asked.waiting,
    )
    figures, failed = _measured(asked.only, lambda name: OF_KERNEL[name](settings))
    described = {key: value for key, value in asdict(settings).items() if key != "folder"}
    return (
        figures,
        failed,
        described,
        settings == default and not failed and len(asked.only) == len(OF_KERNEL),
    )


def _projection(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = ProjectionSettings(folder)
    settings = replace(
        default,
        events=asked.events,
        repetitions=asked.repetitions,
        keys=asked.keys,
        fewer_keys=asked.fewer_keys,
        shipped=asked.shipped,
    )
    described: dict[str, Any] = {key: value for key, value in asdict(settings).items() if key != "folder"}
    with ExitStack() as stack:
        kafka = _told_broker(stack, folder, asked.bootstrap, described)
        figures, failed = _measured(asked.only, lambda name: OF_PROJECTION[name](settings, kafka))
    full = replace(settings, shipped=default.shipped) == default and settings.shipped >= default.shipped
    return figures, failed, described, full and not failed and len(asked.only) == len(OF_PROJECTION)


def _worker(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = WorkerSettings(folder)
    sizes = {name: getattr(asked, name) for name in asdict(default) if name != "folder"}
    settings = replace(default, **sizes)
    described: dict[str, Any] = dict(sizes)
    with ExitStack() as stack:
        kafka = _told_broker(stack, folder, asked.bootstrap, described)
        figures, failed = _measured(asked.only, lambda name: OF_WORKER[name](settings, kafka))
    full = replace(settings, runs=default.runs) == default and settings.runs >= default.runs
    return figures, failed, described, full and not failed and len(asked.only) == len(OF_WORKER)


def _prompt(asked: argparse.Namespace, folder: Path) -> Outcome:
    settings = prompt.PromptSettings(folder, asked.repetitions)
    figures, failed = _measured(asked.only, lambda name: OF_PROMPT[name](settings))
    full = settings == prompt.PromptSettings(folder) and not failed
    return figures, failed, {"repetitions": settings.repetitions}, full


def _delegation(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = delegation.DelegationSettings(folder)
    sizes = {name: getattr(asked, name) for name in asdict(default) if name != "folder"}
    settings = replace(default, **sizes)
    described: dict[str, Any] = dict(sizes)
    with ExitStack() as stack:
        kafka = _told_broker(stack, folder, asked.bootstrap, described)
        figures, failed = _measured(asked.only, lambda name: delegation.OF_DELEGATION[name](settings, kafka))
    full = settings == default and not failed and len(asked.only) == len(delegation.OF_DELEGATION)
    return figures, failed, described, full


def _registry(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = registry.RegistrySettings(folder)
    settings = replace(
        default, events=asked.events, capabilities=asked.capabilities, repetitions=asked.repetitions
    )
    figures, failed = _measured(asked.only, lambda name: OF_REGISTRY[name](settings))
    described = {key: value for key, value in asdict(settings).items() if key != "folder"}
    full = settings == default and not failed and len(asked.only) == len(OF_REGISTRY)
    return figures, failed, described, full


def _tools(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = tools.ToolSettings(folder)
    settings = replace(default, repetitions=asked.repetitions, calls=asked.calls)
    described: dict[str, Any] = {"repetitions": asked.repetitions, "calls": asked.calls}
    with ExitStack() as stack:
        kafka = _told_broker(stack, folder, asked.bootstrap, described)
        figures, failed = _measured(asked.only, lambda name: OF_TOOLS[name](settings, kafka))
    full = settings == default and not failed and len(asked.only) == len(OF_TOOLS)
    return figures, failed, described, full


def _llm(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = llm.LlmSettings(folder)
    settings = replace(default, repetitions=asked.repetitions, calls=asked.calls)
    figures, failed = _measured(asked.only, lambda name: llm.OF_LLM[name](settings))
    described: dict[str, Any] = {"repetitions": asked.repetitions, "calls": asked.calls}
    return figures, failed, described, settings == default and not failed


def _memory(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = memory.MemorySettings(folder)
    settings = replace(
        default, facts=asked.facts, repetitions=asked.repetitions, runs=asked.runs, turns=asked.turns
    )
    figures, failed = _measured(asked.only, lambda name: memory.OF_MEMORY[name](settings))
    described = {key: value for key, value in asdict(settings).items() if key != "folder"}
    full = settings == default and not failed and len(asked.only) == len(memory.OF_MEMORY)
    return figures, failed, described, full


def _chat(asked: argparse.Namespace, folder: Path) -> Outcome:
    default = chat.ChatSettings(folder)
    settings = replace(default, turns=asked.turns, repetitions=asked.repetitions)
    figures, failed = _measured(asked.only, lambda name: chat.OF_CHAT[name](settings))
    described = {key: value for key, value in asdict(settings).items() if key != "folder"}
    return figures, failed, described, settings == default and not failed


MEASURE: dict[str, Callable[[argparse.Namespace, Path], Outcome]] = {
    "log": _log,
    "kernel": _kernel,
    "projection": _projection,
    "worker": _worker,
    "prompt": _prompt,
    "delegation": _delegation,
    "registry": _registry,
    "tools": _tools,
    "llm": _llm,
    "memory": _memory,
    "chat": _chat,
}


def _measured(
    groups: Sequence[str], measure: Callable[[str], Awaitable[list[Figure]]]
) -> tuple[list[Figure], dict[str, str]]:
    """Figures, and reasons of what could not be measured by group."""
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    for name in groups:
        try:
            figures += asyncio.run(_of(measure(name)))
        except Exception as error:
            _failed(failed, name, error)
    return figures, failed


def _told_broker(
    stack: ExitStack, folder: Path, bootstrap: str | None, described: dict[str, Any]
) -> KafkaServer:
    """A broker; the settings say which."""
    kafka = _broker(stack, folder, bootstrap)
    described["broker"] = kafka.source
    progress(f"Kafka: {kafka.source} at {kafka.bootstrap}")
    return kafka


def _failed(failed: dict[str, str], name: str, error: BaseException) -> None:
    failed[name] = f"{type(error).__name__}: {error}"
    traceback.print_exc()
    progress(f"{name} could not be measured: {failed[name]}")


def _measure(
    groups: Sequence[str], settings: Settings, bootstrap: str | None
) -> tuple[list[Figure], dict[str, str], str]:
    """Figures, reasons of what could not be measured by group, and which broker served."""
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    source = "none"
    with ExitStack() as stack:
        kafka = None
        for name in groups:
            try:
                if name in ON_KAFKA:
                    if kafka is None:
                        kafka = _broker(stack, settings.folder, bootstrap)
                        source = kafka.source
                        progress(f"Kafka: {kafka.source} at {kafka.bootstrap}")
                    figures += asyncio.run(_of(ON_KAFKA[name](settings, kafka)))
                else:
                    figures += asyncio.run(_of(sqlite.measure(settings)))
            except (Exception, pytest.fail.Exception) as error:
                _failed(failed, name, error)
    return figures, failed, source


async def _of(measuring: Awaitable[list[Figure]]) -> list[Figure]:
    return await measuring


def _broker(stack: ExitStack, folder: Path, bootstrap: str | None) -> KafkaServer:
    if bootstrap is not None:
        return KafkaServer(bootstrap, "a given broker")
    return stack.enter_context(start_kafka(folder / "kafka"))


def _is_full(settings: Settings, groups: Sequence[str], failed: dict[str, str]) -> bool:
    default = Settings(settings.folder)
    full = settings.events >= default.events and settings.tail_events >= default.tail_events
    return full and not failed and len(groups) == len(GROUPS)


def _described(settings: Settings, broker: str) -> dict[str, object]:
    return {
        "events": settings.events,
        "batch": settings.batch,
        "repetitions": settings.repetitions,
        "tail_events": settings.tail_events,
        "broker": broker,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="bench")
    log = commands.add_parser("log", help="the log: append, read, SQLite, a tail's memory")
    log.add_argument("--events", type=_positive, default=Settings.events)
    log.add_argument("--batch", type=_positive, default=Settings.batch, help="events per transaction")
    log.add_argument("--repetitions", type=_positive, default=Settings.repetitions)
    log.add_argument("--tail-events", type=_positive, default=Settings.tail_events)
    place = log.add_mutually_exclusive_group()
    place.add_argument("--bootstrap", help="a broker that is there; without one, one is started")
    place.add_argument("--log", dest="bootstrap", type=_bootstrap, metavar="kafka://HOST:PORT")
    steps = commands.add_parser("kernel", help="the kernel: time and bytes per step, resuming, replaying")
    steps.add_argument("--nodes", type=_positive, default=kernel.KernelSettings.nodes, help="of the chain")
    steps.add_argument("--repetitions", type=_positive, default=kernel.KernelSettings.repetitions)
    steps.add_argument("--turns", type=_sizes, default=kernel.KernelSettings.turns, metavar="N,N")
    steps.add_argument("--resumed", type=_positive, default=kernel.KernelSettings.resumed, help="steps")
    steps.add_argument("--replayed", type=_positive, default=kernel.KernelSettings.replayed, help="steps")
    steps.add_argument("--waiting", type=_positive, default=kernel.KernelSettings.waiting, help="runs")
    folds = commands.add_parser("projection", help="projections: folding, restarting, the past, memory")
    folds.add_argument("--events", type=_positive, default=ProjectionSettings.events)
    folds.add_argument("--repetitions", type=_positive, default=ProjectionSettings.repetitions)
    folds.add_argument("--keys", type=_positive, default=ProjectionSettings.keys, help="of the large state")
    folds.add_argument("--fewer-keys", type=_positive, default=ProjectionSettings.fewer_keys)
    folds.add_argument(
        "--shipped", type=_positive, default=ProjectionSettings.shipped, help="events behind the snapshot"
    )
    folds.add_argument("--bootstrap", help="a broker that is there; without one, one is started")
    works = commands.add_parser(
        "worker",
        help="handlers, runs, two workers and one, commits, lone runs, profile, memory, takeover, fairness",
    )
    works.add_argument("--repetitions", type=_positive, default=WorkerSettings.repetitions)
    works.add_argument("--events", type=_positive, default=WorkerSettings.events, help="that are handled")
    works.add_argument("--graph-runs", type=_positive, default=WorkerSettings.graph_runs)
    works.add_argument("--steps", type=_positive, default=WorkerSettings.steps, help="lone ones")
    works.add_argument("--runs", type=_positive, default=WorkerSettings.runs, help="memory is watched over")
    works.add_argument(
        "--finished", type=_positive, default=WorkerSettings.finished, help="before a takeover"
    )
    works.add_argument("--open-runs", type=_positive, default=WorkerSettings.open_runs, help="the same")
    works.add_argument("--queued", type=_positive, default=WorkerSettings.queued, help="of the large tenant")
    works.add_argument("--asked", type=_positive, default=WorkerSettings.asked, help="by the small tenant")
    works.add_argument("--bootstrap", help="a broker that is there; without one, one is started")
    prompts = commands.add_parser("prompt", help="processor time of the commands that only read")
    prompts.add_argument("--repetitions", type=_positive, default=prompt.PromptSettings.repetitions)
    calls = commands.add_parser("delegation", help="calls between agents: a round trip, many callers")
    default = delegation.DelegationSettings
    calls.add_argument("--repetitions", type=_positive, default=default.repetitions)
    calls.add_argument("--trips", type=_positive, default=default.trips, help="calls of a round")
    calls.add_argument("--callers", type=_positive, default=default.callers, help="runs of a round")
    calls.add_argument("--tokens", type=_positive, default=default.tokens, help="of a run")
    calls.add_argument("--bootstrap", help="a broker that is there; without one, one is started")
    offers = commands.add_parser("registry", help="capabilities: folding, choosing, restarting")
    sizes = registry.RegistrySettings
    offers.add_argument("--events", type=_positive, default=sizes.events)
    offers.add_argument("--capabilities", type=_positive, default=sizes.capabilities)
    offers.add_argument("--repetitions", type=_positive, default=sizes.repetitions)
    made = commands.add_parser("tools", help="tool calls: beside effects, judged, chosen, in a sandbox")
    made.add_argument("--repetitions", type=_positive, default=tools.ToolSettings.repetitions)
    made.add_argument("--calls", type=_positive, default=tools.ToolSettings.calls, help="of a round")
    made.add_argument("--bootstrap", help="a broker that is there; without one, one is started")
    models = commands.add_parser("llm", help="calls of models: journaled, beside LangChain's client")
    models.add_argument("--repetitions", type=_positive, default=llm.LlmSettings.repetitions)
    models.add_argument("--calls", type=_positive, default=llm.LlmSettings.calls, help="at the same time")
    facts = commands.add_parser("memory", help="memory: reads, searches, writes, long sessions")
    many = memory.MemorySettings
    facts.add_argument("--facts", type=_positive, default=many.facts)
    facts.add_argument("--runs", type=_positive, default=many.runs, help="of a round of writes")
    facts.add_argument("--turns", type=_positive, default=many.turns, help="of the long session")
    facts.add_argument("--repetitions", type=_positive, default=many.repetitions)
    talks = commands.add_parser("chat", help="conversations: a turn, early and late")
    talks.add_argument("--turns", type=_positive, default=chat.ChatSettings.turns)
    talks.add_argument("--repetitions", type=_positive, default=chat.ChatSettings.repetitions)
    known = (
        (talks, tuple(chat.OF_CHAT)),
        (facts, tuple(memory.OF_MEMORY)),
        (models, tuple(llm.OF_LLM)),
        (made, tuple(OF_TOOLS)),
        (log, GROUPS),
        (steps, tuple(OF_KERNEL)),
        (folds, tuple(OF_PROJECTION)),
        (works, tuple(OF_WORKER)),
        (prompts, tuple(OF_PROMPT)),
        (calls, tuple(delegation.OF_DELEGATION)),
        (offers, tuple(OF_REGISTRY)),
    )
    for bench, groups in known:
        some = partial(_groups, groups)
        bench.add_argument("--only", type=some, default=groups, help=f"some of {','.join(groups)}")
        bench.add_argument(
            "--folder", type=Path, help="where SQLite's files go (default: the temporary folder)"
        )
        bench.add_argument("--json", action="store_true", help="one JSON object on standard output")
        bench.add_argument("--history", type=Path, help="keep this run there, whatever its size")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _groups(known: Sequence[str], text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names


def _bootstrap(text: str) -> str:
    url = parse_url(text)
    if url.scheme != "kafka":
        raise argparse.ArgumentTypeError(f"{text} is no kafka:// URL")
    return ",".join(url.hosts)
