"""Whether a projection is a pure function of its events: one line in a test.

    rows = check(Invoices(), events)

folds them as a projection is folded, each call checked (`noesium_stream.projection.check`), every state
stored and read again between two events. With `seeds` another process with another hash seed does the same,
which finds an order that comes from iterating over a set.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from noesium_stream.errors import ImpureProjectionError, ProjectionError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.check import PurityCheck, first_difference
from noesium_stream.projection.state_codec import StateCodec


def check(projection: AnyProjection, events: Iterable[EventEnvelope], *, seeds: bool = False) -> Any:
    """Fold events that are in the order of their log; return the rows by key, or the one state.

    Args:
        projection: the one to check.
        events: types that it does not want may be among them.
        seeds: compare with a process of another hash seed; then the projection's class has to be one that
            can be imported, and it has to be picklable.

    Raises:
        ImpureProjectionError: it is not pure; names the event, and the field or the line.
        ProjectionError: what it declares cannot be, or `seeds` asks for what cannot be pickled.
        Exception: what `key` or `apply` raises.
    """
    projection.check()
    events = list(events)
    rows = _folded(projection, events)
    if seeds:
        _compare(projection, rows, _elsewhere(projection, events))
    codec: StateCodec[Any] = StateCodec(projection)
    states = {key: codec.decode(data) for key, data in rows.items()}
    if projection.keyed():
        return states
    return states.get("", projection.initial_state())


def _folded(projection: AnyProjection, events: Sequence[EventEnvelope]) -> dict[str, bytes]:
    call, codec = PurityCheck(projection), StateCodec[Any](projection)
    rows: dict[str, bytes] = {}
    for event in events:
        if not _wanted(projection, event.event_type):
            continue
        if projection.spreads():
            keys = call(projection.keys, event)
        else:
            key = call(projection.key, event)
            keys = () if key is None else (key,)
        for key in keys:
            state = codec.decode(rows[key]) if key in rows else projection.initial_state()
            result = call(projection.apply, state, event)
            if result is None:
                rows.pop(key, None)
            else:
                rows[key] = codec.encode(result)
    return dict(sorted(rows.items()))


def _wanted(projection: AnyProjection, event_type: str) -> bool:
    types = projection.event_types
    if types is None:
        return True
    return any(event_type == name or (name.endswith(".") and event_type.startswith(name)) for name in types)


def _elsewhere(projection: AnyProjection, events: Sequence[EventEnvelope]) -> dict[str, bytes]:
    """The rows that another process makes, with another hash seed."""
    try:
        task = pickle.dumps((projection, events))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ProjectionError(
            f"The projection {projection.name} cannot be handed to another process: {brief(error, 300)}",
            hint="Define its class at the top of a module.",
        ) from error
    own = os.environ.get("PYTHONHASHSEED", "random")
    run = subprocess.run(
        [sys.executable, "-m", "noesium_stream.testing.projections"],
        input=task,
        capture_output=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONHASHSEED": "1" if own != "1" else "2",
        },
    )
    if run.returncode != 0:
        raise ProjectionError(
            f"Another process cannot fold the projection {projection.name}: "
            f"{run.stderr.decode(errors='replace').strip()[-500:]}",
            hint="Define its class at the top of a module that can be imported.",
        )
    rows: dict[str, bytes] = pickle.loads(run.stdout)
    return rows


def _compare(projection: AnyProjection, rows: dict[str, bytes], others: dict[str, bytes]) -> None:
    for key in sorted(rows.keys() | others.keys()):
        if rows.get(key) != others.get(key):
            difference = first_difference(rows.get(key), others.get(key))
            raise ImpureProjectionError(
                f"The projection {projection.name} has another state of {key!r} in a process with another "
                f"hash seed: {difference}.",
                hint="Iterate over sorted(…), not over a set.",
            )


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(_folded(*pickle.loads(sys.stdin.buffer.read()))))
