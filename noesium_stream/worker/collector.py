"""No garbage collection while a journal is read back.

Decision record: what is read back stays alive (it is the history of the open runs), and yet each time it has
grown by a quarter Python's collector goes through all of it, and through all that the process has imported:
half of the time that a run of 10,000 steps takes to go on. Nothing in it refers in circles, so that there is
nothing to find. The collector is switched off for that long, and no longer; other tasks of the process
produce garbage meanwhile, which is collected afterwards.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
