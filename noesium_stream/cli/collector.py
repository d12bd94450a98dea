"""Python's cyclic garbage collector until a command begins: off.

Decision record: the imports of a command make half a million objects, and nearly all of them stay. The
collector scans them again and again meanwhile: 0.3 of the 1.6 seconds of processor time that an answer from
documents takes. So it is off until the command begins. What is there by then is never scanned at all: not by
the first collection, which would scan everything, and not when the process ends.
"""

from __future__ import annotations

import gc

_paused = False


def pause() -> None:
    """Switch the collector off until `resume`; one that is off already stays so."""
    global _paused
    if gc.isenabled():
        gc.disable()
        _paused = True


def resume(*, spare: bool = False) -> None:
    """Switch the collector on again if `pause` has switched it off.

    Args:
        spare: exclude all present objects from collection for good.
    """
    global _paused
    if _paused:
        _paused = False
        if spare:
            gc.freeze()
        gc.enable()
