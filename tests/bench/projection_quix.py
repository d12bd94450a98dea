"""The peer: Quix Streams folds the topic; run by the Python of a virtual environment that has it.

Why it is fair: its defaults, which are its fastest (a commit every 5 seconds, RocksDB without fsync); exactly
once and a changelog, since its state is otherwise lost with the machine, while ours is folded again from the
topic; no output topic; no logging. The count takes a record's bytes as they are. For the sum the envelope
is read by fastavro with the schema parsed once, the payload by orjson; nothing is validated. The settings of
fetching are those of our reader. The clock runs from the subscription to the return of the last transaction's
commit, with the state flushed. It stops itself by counting, which costs nothing that can be measured.

    PYTHON projection_quix.py '{"bootstrap": …, "topic": …, "group": …, "folder": …, "count": …, "fold": …}'
"""

from __future__ import annotations

import io
import json
import sys
import time
from typing import Any

import fastavro
import orjson
from quixstreams import Application, State
from quixstreams.models import Deserializer

FRAME = 10
"""Bytes before the body of an Avro single object."""


class Envelope(Deserializer):
    """The envelope as a dict, with its payload decoded."""

    def __init__(self, schema: Any) -> None:
        super().__init__()
        self._schema = fastavro.parse_schema(schema)

    def __call__(self, value: bytes, ctx: Any) -> Any:
        event: Any = fastavro.schemaless_reader(io.BytesIO(value[FRAME:]), self._schema, None)
        event["payload"] = orjson.loads(event["payload"])
        return event


def main(asked: dict[str, Any]) -> None:
    """Fold the topic once; print how long it took, and the sum of all states' changes."""
    app = Application(
        broker_address=asked["bootstrap"],
        consumer_group=asked["group"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=asked["folder"],
        loglevel=None,
        consumer_extra_config={
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 16_384,
        },
    )
    decoding = Envelope(asked["schema"]) if asked["fold"] == "sum" else "bytes"
    frame = app.dataframe(app.topic(asked["topic"], value_deserializer=decoding))
    seen = total = 0
    first = 0.0
    count = asked["count"]

    def counted(value: Any, state: State) -> None:
        nonlocal seen, total, first
        seen += 1
        if seen == 1:
            first = time.perf_counter()
        state.set("n", state.get("n", 0) + 1)
        total += 1
        if seen == count:
            app.stop()

    def summed(value: Any, state: State) -> None:
        nonlocal seen, total, first
        seen += 1
        if seen == 1:
            first = time.perf_counter()
        amount = value["payload"]["duration_ms"]
        state.set("n", state.get("n", 0) + amount)
        total += amount
        if seen == count:
            app.stop()

    frame.apply(summed if asked["fold"] == "sum" else counted, stateful=True)
    context: Any = app._processing_context
    commit, done = context.commit_checkpoint, 0.0

    def timed(*args: Any, **kwargs: Any) -> None:
        nonlocal done
        commit(*args, **kwargs)
        if seen == count and not done and kwargs.get("force"):
            done = time.perf_counter()

    context.commit_checkpoint = timed
    began = time.perf_counter()
    app.run()
    print(json.dumps({"seconds": done - began, "from_first": done - first, "events": seen, "total": total}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
