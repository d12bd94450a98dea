"""Retry policies: the number of attempts and the pauses between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Retries:
    """A retry policy: a limited number of attempts, with growing pauses between them.

    Args:
        max_attempts: number of attempts, the first one included.
        initial_interval: the pause after the first failure.
        backoff_factor: ratio of each pause to the one before it.
        max_interval: longest pause, whatever `backoff_factor` is.
        jitter: largest random change of a pause, as a fraction of it, 0 to 1; the resulting pause is on the
            log.
        non_retryable: exceptions (and their subclasses) that are not retried.

    Raises:
        ConfigError: a number is out of range.
    """

    max_attempts: int = 3
    initial_interval: Duration = timedelta(seconds=1)
    backoff_factor: float = 2.0
    max_interval: Duration = timedelta(minutes=1)
    jitter: float = 0.1
    non_retryable: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigError(f"Retries(max_attempts={self.max_attempts}): it is tried at least once.")
        if not (math.isfinite(self.backoff_factor) and self.backoff_factor >= 1):
            raise ConfigError(
                f"Retries(backoff_factor={self.backoff_factor}): pauses grow, so it is at least 1."
            )
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"Retries(jitter={self.jitter}) is not between 0 and 1.")
        initial_s = in_seconds(self.initial_interval, "Retries(initial_interval)")
        if not 0 <= initial_s <= in_seconds(self.max_interval, "Retries(max_interval)"):
            raise ConfigError(
                f"Retries(initial_interval={self.initial_interval}, max_interval={self.max_interval}): the "
                "first pause is not negative, and no longer than the longest."
            )

    def pause_ms(self, failed: int, error: Exception, chance: float) -> int | None:
        """Milliseconds until the next attempt after `failed` failures, the last one by `error`.

        None: no further attempt. `chance` in [0, 1) picks the jitter. A pause that the server asks for
        (`retry_after` of the error) is made, up to `max_interval`.
        """
        if failed >= self.max_attempts or isinstance(error, self.non_retryable):
            return None
        longest = in_seconds(self.max_interval, "max_interval") * 1000
        pause = in_seconds(self.initial_interval, "initial_interval") * 1000
        for _ in range(failed - 1):
            if pause >= longest:
                break  # else a float overflows where many attempts are allowed
            pause *= self.backoff_factor
        pause = min(pause, longest) * (1 + self.jitter * (2 * chance - 1))
        asked_s = getattr(error, "retry_after", None)  # a server may ask for more, within the longest pause
        return round(max(pause, min(asked_s * 1000, longest)) if isinstance(asked_s, int | float) else pause)
