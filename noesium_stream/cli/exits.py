"""Exit codes of the commands, for scripts."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNAVAILABLE: Final = 3
CRASHED: Final = 70
INTERRUPTED: Final = 130

EXIT_CODES: Final = (
    "Exit codes: 0 done; 1 run or check failed; 2 bad input; 3 the log is not available; "
    "70 a fault of the program; 130 Ctrl-C."
)
