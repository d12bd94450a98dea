"""By hand: a reader in another process that sees commits by polling `data_version`.

Why it is fair: `PRAGMA data_version` is the cheapest question SQLite answers about other processes' commits;
5 ms between questions is what wakes in time without burning a core. Prints `first` after the first event, and
at the end the time at which it saw each one.

    python -m tests.bench.by_hand.sqlite_poll FILE COUNT
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time

POLL_S = 0.005


def main(path: str, count: int) -> None:
    """See `count` events, then say when each came."""
    connection = sqlite3.connect(path, isolation_level=None)
    seen: list[int] = []
    version = -1
    while len(seen) < count:
        now = connection.execute("PRAGMA data_version").fetchone()[0]
        if now == version:
            time.sleep(POLL_S)
            continue
        version = now
        rows = connection.execute(
            "SELECT id, value FROM log WHERE id > ? ORDER BY id", (len(seen),)
        ).fetchall()
        if rows and not seen:
            print("first", flush=True)
        seen += [time.monotonic_ns()] * len(rows)
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
