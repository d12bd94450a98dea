"""The parent of the harness' processes: it has everything loaded, no thread and no event loop, and forks.

    python -m tests.chaos.zygote

reads lines of JSON from standard input and answers each with one. `{"start": SPEC}` forks a process and gives
its `pid`; `{"reap": PID}` waits for it and gives its exit code, or minus the signal that ended it. What SPEC
says is in `Spec`. All that it forks has its hash seed. It ends, with its children, at the end of its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any, TypedDict

import pytest

from noesium_stream.cli import app, signals
from noesium_stream.cli.commands import worker  # noqa: F401 - loaded once, here
from noesium_stream.cli.commands.projections import project  # noqa: F401 - as above
from noesium_stream.log.kafka.group import member_config
from noesium_stream.log.sqlite import group as sqlite_group
from noesium_stream.worker.commit import partition_writer as writing
from noesium_stream.worker.handlers import tenure as handling
from noesium_stream.worker.state import state_keeper
from tests.chaos import workload  # noqa: F401
from tests.chaos.ledger import Ledger
from tests.chaos.plants import PLANTS
from tests.chaos.points import POINTS, Strike
from tests.chaos.points_commit import arm_commit, is_of_commit
from tests.chaos.refold import refold
from tests.sim import cast, tool_cast

AGENTS = tuple(f"tests.chaos.workload:{name}" for name in ("Caller", "Carrier", "Sums"))
TALLY = "tests.chaos.workload:Tally"

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

SESSION_S = 2.0
"""Sessions and leases are short, so that others take over soon."""


class Spec(TypedDict):
    """A process to start.

    Attributes:
        name: of it, in the ledger.
        role: `worker`, `projection` (both are the command line's), `command` (any of them), or `fold` (see
            `refold`).
        url: of the log.
        home: its folder.
        ledger: file of the ledger.
        pipe: a FIFO that it writes lines to.
        said: file for what it writes to standard output and error.
        point: where it stands still and waits to be killed (`points`, `points_commit`); None: nowhere.
        number: at which arrival there.
        plant: a bug that it is to have; None: none.
        seed: of what else is left to chance.
        agents: what a worker runs.
        more: for a fold: which folders have what workers and projections have kept; for a command: its
            `words`, and the file for what it writes to standard output, `out`.
    """

    name: str
    role: str
    url: str
    home: str
    ledger: str
    pipe: str
    said: str
    point: str | None
    number: int
    plant: str | None
    seed: str
    agents: list[str]
    more: dict[str, Any]


class Outside:
    """In the place of the simulation's context variable: tasks that a client's thread begins lack that."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def get(self) -> Ledger:
        """What lies outside."""
        return self._ledger


def shorten_sessions() -> None:
    """For this process; and state is written more often."""
    vars(writing).update(PROOF_S=SESSION_S / 4)
    vars(member_config).update(SESSION_MS=round(SESSION_S * 1000), HEARTBEAT_MS=300)
    vars(sqlite_group).update(LEASE_S=SESSION_S)
    vars(state_keeper).update(WRITE_S=0.2)
    vars(handling).update(FLUSH_EVENTS=5)
    sqlite_group.SqliteCoordinator.beat_s = 0.3


def live(spec: Spec) -> int:
    """What a process does; its exit code."""
    pipe = os.open(spec["pipe"], os.O_WRONLY)
    ledger = Ledger(Path(spec["ledger"]), spec["name"], Random(f"{spec['seed']} {spec['name']}"))
    for module in (cast, tool_cast):
        vars(module).update(WORLD=Outside(ledger))
    os.write(pipe, b"born\n")
    if spec["plant"] is not None:
        PLANTS[spec["plant"]].switch_on(pytest.MonkeyPatch())
    if spec["point"] is not None:
        strike = Strike(pipe, spec["number"], Random(f"{spec['seed']} strike"))
        if is_of_commit(spec["point"]):
            arm_commit(spec["point"], strike)
        else:
            POINTS[spec["point"]].arm(strike, ledger)
    if spec["role"] == "fold":
        asyncio.run(refold(spec["url"], Path(spec["home"]), spec["more"]))
        return 0
    os.environ["NOESIUM_HOME"] = spec["home"]
    os.environ["NOESIUM_RUNTIME_ID"] = spec["name"]
    if spec["role"] == "command":
        os.dup2(os.open(spec["more"]["out"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), 1)
        return app.run([*spec["more"]["words"], "--log", spec["url"]])
    words = ["worker", *spec["agents"]] if spec["role"] == "worker" else ["project", TALLY]
    return app.run([*words, "--log", spec["url"]])


def start(spec: Spec) -> int:
    """Fork a process; its id."""
    # Who is told to end before it has begun ends as the command line's processes do.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signals.stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        said = os.open(spec["said"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(old, new)
        os.setsid()
        _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))  # nobody is left behind, however this ends
        code = live(spec)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def reap(pid: int) -> dict[str, Any]:
    """Wait for a process; its exit code, or minus the signal that ended it, and the CPU time that it took."""
    _, status, used = os.wait4(pid, 0)
    return {"code": os.waitstatus_to_exitcode(status), "cpu_s": used.ru_utime + used.ru_stime}


def main() -> None:
    """Serve until nobody asks any more."""
    shorten_sessions()
    alive: set[int] = set()
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "start" in asked:
            answer = {"pid": start(asked["start"])}
            alive.add(answer["pid"])
        else:
            answer = reap(asked["reap"])
            alive.discard(asked["reap"])
        print(json.dumps(answer), flush=True)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        reap(pid)


if __name__ == "__main__":
    main()
