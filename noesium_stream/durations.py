"""Durations in the public API: a `timedelta`, or a number of seconds."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from noesium_stream.errors import ConfigError

Duration = timedelta | float
"""A length of time: a `timedelta`, or a number of seconds."""


def in_seconds(duration: Duration, name: str, *, positive: bool = False) -> float:
    """Convert a duration to seconds.

    Args:
        duration: a `timedelta`, or a number of seconds.
        name: the parameter that it was given for; the message names it.
        positive: whether it has to be above zero.

    Raises:
        ConfigError: it is not a duration, not finite, or not above zero.
    """
    seconds: Any = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ConfigError(
            f"{name}={duration!r} is not a duration.", hint="Give a timedelta, or a number of seconds."
        )
    if positive and seconds <= 0:
        raise ConfigError(f"{name}={duration!r} is not above zero.", hint="Give a longer duration.")
    return float(seconds)
