"""Watchdogs: what does not happen in time (RFC-1001 §5, `msgbus`)."""

from noesium_stream.agent.watchdog.rule import Overdue
from noesium_stream.agent.watchdog.watchdog import BaseWatchdog

__all__ = ["BaseWatchdog", "Overdue"]
