"""What all tests share: a real Kafka (`tests/support/kafka.py`) and the backends of the contract suite."""

from __future__ import annotations

import signal

pytest_plugins = [
    "tests.support.parallel",
    "tests.support.compiled",
    "tests.support.kafka",
    "tests.support.backends",
]

# A shell starts background jobs with Ctrl-C ignored, and who ignores it passes that on: processes under test
# would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
