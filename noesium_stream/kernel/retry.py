"""How often and after which pauses something is tried again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from noesium_stream.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Retries:
    """A policy: try again after pauses that grow, a limited number of times.

    Args:
        attempts: how often it is tried in all, the first time included.
        initial: the pause after the first failure.
        factor: how much longer each pause is than the one before it.
        maximum: no pause is longer, whatever `factor` says.
        jitter: by which part of itself a pause is at most shortened or lengthened, 0 to 1; which part
            it was is on the log, with the pause.
        non_retryable: exceptions (and their subclasses) after which it is not tried again.

    Raises:
        ConfigError: a number that makes no policy.
    """

    attempts: int = 3
    initial: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    maximum: timedelta = timedelta(minutes=1)
    jitter: float = 0.1
    non_retryable: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"Retries(attempts={self.attempts}): it is tried at least once.")
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ConfigError(f"Retries(factor={self.factor}): pauses grow, so it is at least 1.")
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"Retries(jitter={self.jitter}) is not between 0 and 1.")
        if not timedelta(0) <= self.initial <= self.maximum:
            raise ConfigError(
                f"Retries(initial={self.initial}, maximum={self.maximum}): the first pause is not negative, "
                "and no longer than the longest."
            )

    def pause_ms(self, failed: int, error: Exception, chance: float) -> int | None:
        """Milliseconds until the next attempt after `failed` failures, the last one by `error`.

        None: there is none. `chance` in [0, 1) picks the jitter.
        """
        if failed >= self.attempts or isinstance(error, self.non_retryable):
            return None
        longest = self.maximum / timedelta(milliseconds=1)
        pause = self.initial / timedelta(milliseconds=1)
        for _ in range(failed - 1):
            if pause >= longest:
                break  # else a float overflows where many attempts are allowed
            pause *= self.factor
        return round(min(pause, longest) * (1 + self.jitter * (2 * chance - 1)))
