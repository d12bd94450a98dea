"""Uploads levels to the harbour office."""

MAX_WAIT_S = 3600


def next_wait(failures: int) -> int:
    """Seconds to wait before the next try, doubled with each failure.

    The first wait is 30 seconds, and no wait is longer than MAX_WAIT_S. The station's number is added, so
    that a thousand stations do not all come back in the same second after the server was down.
    """
    return min(30 * 2**failures, MAX_WAIT_S)


class UploadQueue:
    """Levels that wait for their upload, oldest first."""

    def acknowledge(self, number: int) -> None:
        """Forget all levels up to `number`: the server has them on disk."""
