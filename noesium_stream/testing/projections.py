"""Purity check of a projection in one line of a test.

    rows = check_projection(Invoices(), events)

folds the events like an attached projection. Each call is checked (`purity_check`), and every state is stored
and read again between two events. With `seeds` another process with another hash seed does the same, which
finds an order that comes from iterating over a set.
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
from noesium_stream.projection.purity_check import PurityCheck, first_difference
from noesium_stream.projection.state.codec import StateCodec


def check_projection(
    projection: AnyProjection, events: Iterable[EventEnvelope], *, seeds: bool = False
) -> Any:
    """Fold events in the order of their log; return the rows by key, or the single state.

    Args:
        projection: the projection to check.
        events: the events; types that the projection does not want are skipped.
        seeds: compare with a process of another hash seed. This requires a picklable projection of an
            importable class.

    Raises:
        ImpureProjectionError: it is not pure; names the event, and the field or the line.
        ProjectionError: its declaration is invalid, or `seeds` is set and it cannot be pickled.
        Exception: any error of `key` or `apply`.
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
    """The rows that another process with another hash seed produces."""
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
