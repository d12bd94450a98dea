"""A program that answers JSON lines, or does what it should not: `hostile_daemon.py HOW`.

It imports nothing of the package. What it starts or survives is said in the file PIDS, if that is set.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

HOW = sys.argv[1] if len(sys.argv) > 1 else "good"


def put(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def answer(request: dict[str, Any], result: Any) -> str:
    return json.dumps({"request_id": request["request_id"], "result": result}) + "\n"


def note_pid(pid: int) -> None:
    path = os.environ.get("PIDS")
    if path:
        with open(path, "a") as file:
            file.write(f"{pid}\n")


def sleep_for_ever() -> None:
    while True:
        time.sleep(60)


def flood_errors() -> None:
    for _ in range(300):
        sys.stderr.write("e" * 10_000 + "\n")
    sys.stderr.write("the last words\n")
    sys.stderr.flush()


def misbehave(request: dict[str, Any]) -> None:
    """What is done with a request whose payload says `how`, or all of them."""
    how = request["payload"].get("how", HOW)
    if how == "echo":
        put(answer(request, request))
    elif how == "twice":
        put(answer(request, 1) * 2)
    elif how == "endless":
        for _ in range(4_000):
            put("x" * 1_000)
        sleep_for_ever()
    elif how == "huge":
        put(answer(request, "x" * 2_000_000))
    elif how == "not_json":
        put("Traceback (most recent call last):\n")
    elif how == "wrong_id":
        put(answer({"request_id": "another"}, 1))
    elif how == "silent":
        sleep_for_ever()
    elif how == "exit":
        sys.stderr.write("cannot go on\n")
        sys.exit(3)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "close":
        os.close(1)
        sleep_for_ever()
    elif how == "error":
        put(json.dumps({"request_id": request["request_id"], "error": "no such thing"}) + "\n")
    elif how == "flood_errors":
        flood_errors()
        put(answer(request, "done"))
    elif how == "children":
        ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        for apart in (False, True):
            child = subprocess.Popen([sys.executable, "-c", ignores], start_new_session=apart)
            note_pid(child.pid)
        put(answer(request, "forked"))
    elif how == "then_talk":
        put(answer(request, "done") + "by the way\n")
    elif how == "then_exit":
        put(answer(request, "done"))
        sys.exit(0)
    else:
        put(answer(request, {"pid": os.getpid(), "how": how, "cwd": os.getcwd(), "env": dict(os.environ)}))


def main() -> None:
    note_pid(os.getpid())
    if HOW == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if HOW == "never_reads":
        sleep_for_ever()
    if HOW == "dies_at_once":
        sys.exit(4)
    if HOW == "talks_first":
        put("welcome\n")
    for line in sys.stdin:
        misbehave(json.loads(line))
    if HOW == "stubborn":
        sleep_for_ever()


if __name__ == "__main__":
    main()
