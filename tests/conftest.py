"""What all tests share: a real Kafka (`tests/support/kafka.py`) and the backends of the contract suite."""

from __future__ import annotations

pytest_plugins = ["tests.support.kafka", "tests.support.backends"]
