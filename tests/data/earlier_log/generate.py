"""Makes the files of this folder; see README.md. It is run at the commit whose data they are.

    python -m tests.data.earlier_log.generate sqlite
    python -m tests.data.earlier_log.generate kafka BOOTSTRAP

Workers are processes of their own (`generate worker ...`, which is `noesium worker ...`).
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar
from urllib.parse import quote

import zstandard
from confluent_kafka import Consumer, TopicPartition
from noesium_stream.client.dead_letters import dead_letters
from noesium_stream.client.replay import fork

from noesium_stream.cli import main as noesium
from noesium_stream.client import Client, Run
from noesium_stream.clock import SystemClock
from noesium_stream.errors import RunCancelledError, RunFailedError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import RunRequested
from noesium_stream.kernel import LogCheckpointer
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.port import Outgoing
from tests.data.earlier_log import names, nodes
from tests.data.earlier_log.agents import TALK
from tests.data.earlier_log.describe import described, known_events, target_of

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
AGENTS = "tests.data.earlier_log.agents"
NAMESPACE = "earlierlog001"
PARTITIONS = 2
PATIENCE_S = 60.0
FIRST = (
    *("PURCHASE", "WAITER", "GROWN", "ASKER", "HELPER", "SHOP", "TRIP", "FLAKY"),
    *("ORDER_1", "PINNED_1", "Tally"),
)


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.02)


class Worker:
    """A worker process."""

    alive: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, url: str, home: Path, *agents: str, options: tuple[str, ...] = (), **env: str) -> None:
        words = [*(f"{AGENTS}:{name}" for name in agents), "--log", url, *options]
        self._said = home.parent / f"{time.time_ns()}.txt"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.data.earlier_log.generate", "worker", *words],
                cwd=ROOT,
                stderr=said,
                env={
                    **os.environ,
                    **env,
                    "NOESIUM_HOME": str(home),
                    "NOESIUM_PARTITIONS": str(PARTITIONS),
                    "NOESIUM_NAMESPACE": NAMESPACE,
                },
            )
        self.alive.append(self._process)

    async def at_work(self) -> None:
        """Return when it has begun."""

        async def said() -> bool:
            text = self._said.read_text()
            assert self._process.poll() is None or "at work on" in text, text
            return "at work on" in text

        await until(said)

    async def stop(self) -> None:
        """Let it hand over and end."""
        self._process.terminate()
        assert await asyncio.to_thread(self._process.wait, PATIENCE_S) == 0, self._said.read_text()

    async def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait, PATIENCE_S)

    async def dies(self) -> None:
        """Return when it has killed itself."""
        code = await asyncio.to_thread(self._process.wait, PATIENCE_S)
        assert code == -signal.SIGKILL, self._said.read_text()


class Scene:
    """A log, a folder for workers, and who asks."""

    def __init__(self, url: str, folder: Path, log: EventLog, client: Client) -> None:
        self.url, self.folder, self.log, self.client = url, folder, log, client
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self.runs: dict[str, str] = {}

    async def worker(self, *agents: str, options: tuple[str, ...] = (), **env: str) -> Worker:
        worker = Worker(self.url, self.home, *agents, options=options, **env)
        await worker.at_work()
        return worker

    async def start(self, agent_type: str, key: str, input: dict[str, Any], **options: Any) -> Run:
        run = await self.client.start(agent_type, input, idempotency_key=key, **options)
        self.runs[f"{agent_type}/{key}"] = run.id
        return run

    async def has(self, run: Run, event_type: str, count: int = 1) -> None:
        """Wait until the run's journal has it."""

        async def seen() -> bool:
            return [e.event_type async for e in run.events(follow=False)].count(event_type) >= count

        await until(seen)


async def ended_runs(scene: Scene) -> None:
    """Runs that end, and some that wait, on one worker that is told to stop."""
    client = scene.client
    expired = await scene.start("waiter", "expired", {"kind": "signal"}, ttl_ms=1)
    await asyncio.sleep(0.01)
    worker = await scene.worker(*FIRST)

    bread = await scene.start("purchase", "bread", {"text": "bread", "items": [1, 2]})
    oil = await scene.start("purchase", "oil", {"text": "oil", "items": [3]})
    await bread.result(PATIENCE_S)
    await oil.result(PATIENCE_S)
    forked = await fork(client, bread, 2, {"items": [7]}, target_of(scene.log, "purchase", None))
    await forked.result(PATIENCE_S)
    scene.runs["purchase/forked"] = forked.id

    answered = await scene.start("waiter", "answered", {"kind": "question"})
    rejected = await scene.start("waiter", "rejected", {"kind": "question"})
    signalled = await scene.start("waiter", "signalled", {"kind": "signal"})
    slept = await scene.start("waiter", "slept", {"kind": "short sleep"})
    cancelled = await scene.start("waiter", "cancelled", {"kind": "signal"})
    late = await scene.start("waiter", "late", {"kind": "signal"}, deadline=timedelta(seconds=2))
    for run in (answered, rejected):
        await scene.has(run, "approval.requested")
    await answered.approve(value={"by": "noon"}, by="ada")
    await rejected.reject(by="bob")
    await signalled.signal("go", [1, "two"])
    await scene.has(cancelled, "kernel.node.entered")
    await cancelled.cancel("nobody needs it")
    for run in (answered, rejected, signalled, slept):
        await run.result(PATIENCE_S)
    for run in (cancelled, late, expired):
        await failed(run)
    for key, kind in (("asked", "question"), ("listening", "signal"), ("sleeping", "long sleep")):
        await scene.has(await scene.start("waiter", key, {"kind": kind}), "kernel.node.entered")

    await (await scene.start("asker", "asked", {"text": "salt"})).result(PATIENCE_S)
    await (await scene.start("trip", "paid", {"card": "valid"})).result(PATIENCE_S)
    await failed(await scene.start("trip", "stolen", {"card": "stolen"}))
    await failed(await scene.start("flaky", "flaky", {"what": "dust"}))

    for kind, keys in {"order": ("moved", "moved and open"), "pinned": ("old",)}.items():
        for key in keys:
            await scene.has(await scene.start(kind, key, {"cents": 1250}), "approval.requested")

    await scene.has(await scene.start("grown", "first generation", {"kind": "signal"}), "kernel.node.entered")
    await client.grow("grown", 3)
    second = await scene.start("grown", "second generation", {"kind": "short sleep"})
    await second.result(PATIENCE_S)

    for key, n in (("ada", 3), ("bob", 4), ("ada", 5)):
        await client.publish(nodes.Said(n=n), key=key)
    tallies = scene.log.topology.events("tally")

    async def tallied() -> bool:
        return any(info.name == tallies and info.records >= 3 for info in await scene.log.topics())

    await until(tallied)
    await spoil(scene)
    await worker.stop()


async def failed(run: Run) -> None:
    """Wait until it has failed or was cancelled."""
    try:
        await run.result(PATIENCE_S)
    except (RunFailedError, RunCancelledError):
        return
    raise AssertionError(f"{run} did not fail")


async def spoil(scene: Scene) -> None:
    """A command in the wrong partition of an inbox, which becomes a dead letter."""
    clock, log = SystemClock(), scene.log
    run_id = "019c0000-0000-7000-8000-00000000000a"
    event: EventEnvelope = RunRequested(run_id=run_id, agent_type="waiter", input={}).to_envelope(
        AgentRef("person", "client", "local", "1"),
        TraceContext(clock.token(16), clock.token(8)),
        partition_key=run_id,
        metadata={"to": "waiter"},
    )
    sender = await log.writer("foreign")
    for partition in range(PARTITIONS):
        await sender.commit([Outgoing(event, log.topology.inbox("waiter"), partition, "another")])
    await sender.close()

    async def refused() -> bool:
        return len(await dead_letters(log)) == PARTITIONS

    await until(refused)


async def versions(scene: Scene) -> None:
    """A run that is moved and ends, one that is moved and waits, one that is parked, and a parked request."""
    worker = await scene.worker("ORDER_2", "PINNED_2")
    moved = await scene.start("order", "moved", {"cents": 1250})  # the same key: the same run
    waits = await scene.start("order", "moved and open", {"cents": 1250})
    for run in (moved, waits):
        await scene.has(run, "run.migrated")
    await moved.approve(value="Ada", by="ada")
    await moved.result(PATIENCE_S)
    await scene.has(await scene.start("pinned", "old", {"cents": 1250}), "run.parked")
    new = await scene.start("pinned", "new", {"amount": "7 EUR"})
    await scene.has(new, "approval.requested")
    await new.approve(by="ada")
    await new.result(PATIENCE_S)
    newer = await scene.start("pinned", "newer", {"amount": "8 EUR"}, version="^3")

    async def parked() -> bool:
        return (await newer.info()).status == "parked"

    await until(parked)
    await worker.stop()


async def killed(scene: Scene) -> None:
    """Runs whose workers die: between two steps, in an idempotent effect, in an external one.

    The first of each is taken over and goes on as far as it can; the last one stays as it was.
    """
    dying: dict[str, Any] = {nodes.DIES: "1"}
    for agent_type, name, dies in (
        ("chain", "CHAIN", "step"),
        ("charge", "CHARGE", "effect"),
        ("charge-external", "CHARGE_EXTERNAL", "effect"),
    ):
        worker = await scene.worker(name, **dying)
        first = await scene.start(agent_type, "taken over", {"dies": dies})
        await worker.dies()
        worker = await scene.worker(name)
        if agent_type == "charge-external":
            await scene.has(first, "effect.outcome.unknown")
        else:
            await first.result(PATIENCE_S)
        await (await scene.start(agent_type, "whole", {"dies": ""})).result(PATIENCE_S)
        await worker.stop()
        if agent_type != "charge-external":
            worker = await scene.worker(name, **dying)
            await scene.start(agent_type, "killed", {"dies": dies})
            await worker.dies()


async def queued(scene: Scene) -> None:
    """A worker dies that has one run at work and three commands in its queue; two more come to the inbox."""
    holding: dict[str, Any] = {nodes.HOLDS: "1"}
    worker = await scene.worker("QUEUE", options=("--concurrency", "1"), **holding)
    for n in range(4):
        await scene.start("queue", f"queued {n}", {"n": n})

    async def waiting() -> bool:
        return sum(map(count_waiting, scene.home.glob("worker/queue/*/*.db"))) == 3

    await until(waiting)
    await worker.kill()
    for n in range(4, 6):
        await scene.start("queue", f"queued {n}", {"n": n})


def count_waiting(path: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM waiting").fetchone()[0])
    except sqlite3.Error:
        return 0  # it is just being made


async def delegated(scene: Scene) -> None:
    """A run that has asked another one, whose command waits in the inbox."""
    helper = await scene.worker("HELPER", "SHOP")
    await helper.kill()
    asker = await scene.worker("ASKER")
    await scene.has(await scene.start("asker", "unanswered", {"text": "pepper"}), "capability.invoked")
    await asker.stop()


async def waiting(scene: Scene) -> None:
    """What nobody has taken up: commands in inboxes, and facts."""
    await scene.start("purchase", "waiting", {"text": "milk", "items": [4, 5]})
    await scene.start("grown", "waiting", {"kind": "short sleep"})
    for key, n in (("bob", 6), ("cleo", 7)):
        await scene.client.publish(nodes.Said(n=n), key=key)


async def talk(log: EventLog) -> None:
    """A thread of LangGraph's checkpoints."""
    graph: Any = TALK.compile(checkpointer=LogCheckpointer(log))
    config: Any = {"configurable": {"thread_id": "talk"}}
    for text in ("hello", "and now?"):
        await graph.ainvoke({"messages": [("user", text)]}, config)


def project(scene: Scene) -> None:
    """States of projections, in files; a fact that one of them cannot take holds back the next one."""
    for name in ("execution", "index", f"{AGENTS}:Facts"):
        words = ["project", name, "--once", "--log", scene.url, "--state", str(scene.folder / "projections")]
        env = {**os.environ, "NOESIUM_HOME": str(scene.home), "NOESIUM_NAMESPACE": NAMESPACE}
        subprocess.run(
            [sys.executable, "-m", "tests.data.earlier_log.generate", "command", *words],
            cwd=ROOT,
            env=env,
            check=True,
        )


async def play(url: str, folder: Path, *, embedded: bool) -> dict[str, Any]:
    """All scenes on a new log, and what this commit says of it."""
    log = await open_log(url, catalogue=known_events())
    async with Client(log) as client:
        scene = Scene(url.partition("?")[0], folder, log, client)
        await ended_runs(scene)
        print("ended runs")
        await versions(scene)
        print("versions")
        await killed(scene)
        print("killed")
        await queued(scene)
        print("queued")
        await delegated(scene)
        print("delegated")
        if embedded:
            await talk(log)
            await client.publish(nodes.Said(n=-1), key="dora")
            await client.publish(nodes.Said(n=8), key="dora")
            await asyncio.to_thread(project, scene)
        await waiting(scene)
    await log.close()
    return {"keys": scene.runs, "made_ms": SystemClock().now_ms()}


def compact(path: Path) -> None:
    """All of a database in its one file."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def pack(folder: Path, target: Path) -> None:
    """The log, the workers' states and the projections' states as one compressed file."""
    paths = [folder / "log.db", *folder.glob("home/worker/**/*"), *folder.glob("projections/**/*")]
    files = sorted(path for path in paths if path.is_file() and path.stat().st_size)
    for path in files:
        if path.suffix in (".db", ".state"):
            compact(path)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in files:
            if path.exists() and path.suffix != ".lock":
                info = tarfile.TarInfo(str(path.relative_to(folder)))
                info.size = path.stat().st_size
                archive.addfile(info, io.BytesIO(path.read_bytes()))
    target.write_bytes(zstandard.ZstdCompressor(level=22).compress(buffer.getvalue()))


async def export(log: EventLog, bootstrap: str, target: Path) -> None:
    """The committed records of all topics as JSON lines, one topic partition after the other.

    Each topic begins with a line of its name, its id, and the ends of its partitions.
    """
    lines: list[str] = []
    for info in await log.topics():
        ends = list((await log.end(info.name)).values())
        lines.append(text({"topic": info.name, "id": await log.topic_id(info.name), "ends": ends}))
        for number, end in enumerate(ends):
            lines += await asyncio.to_thread(committed, bootstrap, info.name, number, end)
    target.write_bytes(zstandard.ZstdCompressor(level=22).compress("\n".join(lines).encode()))


def committed(bootstrap: str, topic: str, partition: int, end: int) -> list[str]:
    """The records of a partition: partition, offset, time, key, headers, value."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "export",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    lines: list[str] = []
    consumer = Consumer(settings)
    place = TopicPartition(topic, partition, 0)
    consumer.assign([place])
    while end and consumer.position([place])[0].offset < end:
        message: Any = consumer.poll(0.05)
        if message is None:
            continue
        assert message.error() is None, message.error()
        headers = [[key, b64encode(value).decode()] for key, value in message.headers() or ()]
        key, value = message.key().decode(), b64encode(message.value()).decode()
        lines.append(text([partition, message.offset(), message.timestamp()[1], key, headers, value]))
    consumer.close()
    return lines


def write_expected(name: str, found: dict[str, Any]) -> None:
    """A line for each entry of each part."""
    parts = []
    for part, value in found.items():
        if isinstance(value, dict):
            lines = [f"  {text(key)}: {text(item)}" for key, item in sorted(value.items())]
            parts.append(f" {text(part)}: {{\n" + ",\n".join(lines) + "\n }")
        else:
            parts.append(f" {text(part)}: {text(value)}")
    (HERE / f"{name}.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


async def make_sqlite(folder: Path) -> None:
    """Play on SQLite, keep the files, and write down what this commit says of them."""
    url = f"sqlite:///{folder}/log.db?namespace={NAMESPACE}"
    played = await play(f"{url}&partitions={PARTITIONS}", folder, embedded=True)
    pack(folder, HERE / "sqlite.tar.zst")
    log = await open_log(url, catalogue=known_events())
    write_expected("sqlite", played | await described(log))
    await log.close()


async def make_kafka(bootstrap: str, folder: Path) -> None:
    """Play on Kafka, keep the records, and write down what this commit says of them."""
    url = f"kafka://{bootstrap}?namespace={NAMESPACE}"
    played = await play(f"{url}&partitions={PARTITIONS}", folder, embedded=False)
    log = await open_log(url, catalogue=known_events())
    await export(log, bootstrap, HERE / "kafka.jsonl.zst")
    write_expected("kafka", played | await described(log))
    await log.close()


def be_a_program(words: list[str]) -> None:
    """`noesium ...`, with neither this machine's name nor its folders in what it writes."""
    socket.gethostname = lambda: "host"
    for value in [*vars(nodes).values(), *vars(names).values()]:
        if isinstance(value, FunctionType):
            path = value.__code__.co_filename.removeprefix(f"{ROOT}/")
            value.__code__ = value.__code__.replace(co_filename=path)
    sys.argv = ["noesium", *words]
    noesium()


def main(kind: str, *words: str) -> None:
    """As the module says."""
    if kind == "worker":
        be_a_program([kind, *words])
    elif kind == "command":
        be_a_program([*words])
    with tempfile.TemporaryDirectory() as name:
        try:
            asyncio.run(make_sqlite(Path(name)) if kind == "sqlite" else make_kafka(words[0], Path(name)))
        finally:
            for process in Worker.alive:
                process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
