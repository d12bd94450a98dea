"""The work of a call without a clock."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_of(call: Callable[[], object]) -> int:
    """The lines of Python that run in a call, and the calls of C."""
    steps = 0

    def line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return line

    def c_call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event == "c_call"

    traced = sys.gettrace()
    gc.disable()  # what others do at a collection is not counted
    sys.settrace(line)
    sys.setprofile(c_call)
    try:
        call()
    finally:
        sys.setprofile(None)
        sys.settrace(traced)
        gc.enable()
    return steps
