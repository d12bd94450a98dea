"""Tuning of Python's cyclic garbage collector: off while a journal is read back, and rare otherwise.

Decision record, reading back: the records read back stay alive, because they are the history of the open
runs. Yet each time they have grown by a quarter, Python's collector scans all of them and all that the
process has imported. That is half of the time that a run of 10,000 steps takes to resume. The records have no
reference cycles, so the collector finds nothing. It is switched off for that time only. Garbage that other
tasks produce meanwhile is collected afterwards.

Decision record, at work: with Python's defaults a run outlives the two youngest generations of the collector,
which therefore scanned everything every 350 runs. Most of the scanned objects are loaded modules and classes,
which are never garbage; a process that is only a worker freezes them. A run leaves about 50 objects in cycles
(the others are freed at once). The youngest generation must be larger than the objects of 200 concurrent
runs: if it is scanned after 5,000 new objects, none of them is garbage yet, and each object is scanned three
times. After 50,000, most garbage is freed by the first scan: 5 % of the processor instead of 10 (15,000 runs
of two nodes on one partition; 0.83 of the pace of LangGraph beside it, instead of 0.77), and some 20 MB more
memory. 200,000 was no better.

A handler leaves no cycles, but the events that it has made for its next commits are in memory together: three
objects for each of 20,000 events. With 50,000 new objects the collector scanned those, for 5 % of the
processor (300,000 events on eight partitions); with 200,000 it does not run for them at all.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NEW_OBJECTS: Final = 50_000
"""Number of new objects that starts a scan of the youngest generation in a process that runs agents."""

OF_HANDLERS: Final = 200_000
"""Number of new objects that starts a scan of the youngest generation in a worker with handlers."""

OLDER: Final = 4
"""Number of scans of a generation after which the next older generation is scanned too."""

_lock = threading.Lock()
_pausing = 0
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Switch Python's cyclic garbage collector off inside the `with` block.

    Blocks may be nested, and entered by several tasks and threads at once; the last one to leave switches the
    collector on again. A collector that was off before stays off.
    """
    global _pausing, _was_enabled
    with _lock:
        if _pausing == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pausing += 1
    try:
        yield
    finally:
        with _lock:
            _pausing -= 1
            if _pausing == 0 and _was_enabled:
                gc.enable()


def collect_less_often(new_objects: int = NEW_OBJECTS) -> None:
    """Raise the collector's threshold to `new_objects`; a higher threshold, or none, stays as it is."""
    if 0 < gc.get_threshold()[0] < new_objects:
        gc.set_threshold(new_objects, OLDER, OLDER)


def spare_what_is_loaded() -> None:
    """Exclude all present objects from collection for good; for a process that has finished starting.

    Present garbage is collected first. Present objects that later become garbage in a cycle are not freed.
    """
    gc.collect()
    gc.freeze()
