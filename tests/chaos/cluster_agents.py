"""The agents of `tests.chaos.workload` for processes of `noesium worker`; a variable names their outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from noesium_stream.log.members import this_process
from tests.chaos.cluster_outside import Outside
from tests.chaos.workload import Caller, Carrier, Sums
from tests.sim import cast

__all__ = ["VARIABLE", "Caller", "Carrier", "Sums"]

VARIABLE: Final = "NOESIUM_CHAOS_OUTSIDE"


class _Always:
    """In place of the simulation's context variable, which tasks that begin in a thread do not have."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def get(self) -> Outside:
        return self._outside


if VARIABLE in os.environ:
    vars(cast)["WORLD"] = _Always(Outside(Path(os.environ[VARIABLE]), this_process()))
