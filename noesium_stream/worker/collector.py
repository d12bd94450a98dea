"""When Python's cyclic garbage collector runs: not while a journal is read back, and seldom besides.

Decision record: what is read back stays alive (it is the history of the open runs), and yet each time it has
grown by a quarter Python's collector goes through all of it, and through all that the process has imported:
half of the time that a run of 10,000 steps takes to go on. Nothing in it refers in circles, so that there is
nothing to find. The collector is switched off for that long, and no longer; other tasks of the process
produce garbage meanwhile, which is collected afterwards.

While a worker is at work, a run outlives the collector's first two generations by default, so that it went
through everything every 350 runs. Most of what it went through are the modules and classes that are loaded,
which are never garbage; a process that is a worker and nothing else keeps those apart. A run leaves about 50
objects in circles (what is not in circles goes at once), and the youngest generation is to be larger than
what 200 runs have at once: where it is looked at after 5,000 new objects nothing in it is garbage yet, and
each object is gone through three times. After 50,000, most garbage goes the first time: 5 % of the processor
instead of 10 (15,000 runs of two nodes on one partition; 0.83 of the pace of LangGraph beside it, instead of
0.77), and some 20 MB more memory. With 200,000
it was no less.

A handler leaves nothing in circles, but what it has made for its next commits is there at once: three objects
for each of 20,000 events. After 50,000 new ones the collector went through those, 5 % of the processor
(300,000 events on eight partitions); after 200,000 it does not run for them at all.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NEW_OBJECTS: Final = 50_000
"""So many new objects make the collector look at the youngest ones, while a worker is at work."""

OF_HANDLERS: Final = 200_000
"""The same, where handlers are at work."""

OLDER: Final = 4
"""Each so many times it looks at the next older ones too, and each so many times of those at all."""

_lock = threading.Lock()
_pausing = 0
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Switch Python's cyclic garbage collector off within; the last one to leave switches it on again.

    May be nested, and entered by several tasks and threads at once. A collector that was off stays off.
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
    """Let so many objects come before the collector looks; one that looks later still, or never, stays so."""
    if 0 < gc.get_threshold()[0] < new_objects:
        gc.set_threshold(new_objects, OLDER, OLDER)


def spare_what_is_loaded() -> None:
    """Keep the collector from what is there now, for good; for a process that has started, and goes on.

    What is garbage now is collected first; what is in use now and becomes garbage in a circle stays.
    """
    gc.collect()
    gc.freeze()
