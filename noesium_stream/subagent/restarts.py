"""When a sub-agent that fails is started again, and when a person is asked: without clock and chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from noesium_stream.durations import in_seconds
from noesium_stream.errors import SubagentError
from noesium_stream.kernel.retry import Retries

_SHOWN: Final = 500


class Verdict(NamedTuple):
    """What is done next: start after `wait_s` seconds; or ask a person; or neither, somebody was asked."""

    wait_s: float | None = None
    ask: bool = False


@dataclass(slots=True)
class Restarts:
    """The failures in a row of one session's sub-agent.

    After `policy.max_attempts` of them a person is asked, once. Until the answer, or a success, one try is
    made per `policy.max_interval`; all other calls fail at once.

    Attributes:
        failures: lives in a row that ended before any answer.
        reason: why the last process ended; empty: there was none.
        asked: a person was asked, and has not answered.
    """

    policy: Retries
    failures: int = 0
    reason: str = ""
    asked: bool = False
    _due_s: float = 0.0

    def failed(self, error: SubagentError, now_s: float, chance: float) -> None:
        """Count a life that ended by this error; `chance` in [0, 1) picks the jitter of the pause."""
        self.failures += 1
        self.reason = error.message[:_SHOWN]
        pause_ms = self.policy.pause_ms(self.failures, error, chance)
        pause_s = self._longest_s if pause_ms is None else pause_ms / 1000
        self._due_s = now_s + pause_s

    def worked(self) -> None:
        """Note an answer: what was before does not count."""
        self.failures, self.asked, self._due_s = 0, False, 0.0

    def answered(self, approved: bool, now_s: float) -> None:
        """Note a person's answer: start it anew, or give it one more try after the longest pause."""
        self.asked = False
        self.failures = 0 if approved else min(self.failures, self.policy.max_attempts - 1)
        self._due_s = now_s if approved else now_s + self._longest_s

    def verdict(self, now_s: float) -> Verdict:
        """What a call that needs a process has to do; `ask` is said once."""
        wait_s = max(0.0, self._due_s - now_s)
        if self.failures < self.policy.max_attempts:
            return Verdict(wait_s)
        if not self.asked:
            self.asked = True
            return Verdict(ask=True)
        return Verdict(None if wait_s else 0.0)

    @property
    def _longest_s(self) -> float:
        return in_seconds(self.policy.max_interval, "max_interval")
