"""A clock whose wall time can be set, forward and back, while its monotonic time goes on."""

from __future__ import annotations

from tests.support.hand_clock import HandClock


class SetClock(HandClock):
    """`ahead_s` is the difference between its wall time and the true time, in seconds."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        super().__init__()
        self.ahead_s = ahead_s

    def now_ms(self) -> int:
        return super().now_ms() + round(self.ahead_s * 1000)
