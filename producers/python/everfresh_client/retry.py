"""Retries with exponential backoff and full jitter."""

import dataclasses
import random
import time


@dataclasses.dataclass(frozen=True)
class Retry:
    """Limits of retries, for one message or one batch of up to ten. Times are in seconds."""

    # The first one included.
    max_attempts: int = 4
    # Of one attempt. After it the attempt's outcome is unknown.
    attempt_timeout: float = 3.0
    # Of all attempts together with the backoff between them. An attempt that has begun ends by its
    # own timeout.
    total_timeout: float = 10.0
    # Upper limit of the first backoff. It doubles with every attempt, and each backoff is drawn at
    # random between zero and the limit, so that producers throttled together do not retry together.
    initial_backoff: float = 0.1
    # Where the doubling ends.
    max_backoff: float = 2.0


class Failure(Exception):
    """An attempt that failed, or whose outcome is unknown."""

    def __init__(self, why: str, *, transient: bool, retry_after: float = 0.0):
        super().__init__(why)
        self.transient = transient
        self.retry_after = retry_after


class Attempts:
    """The attempts of one call."""

    def __init__(self, retry: Retry):
        self._retry = retry
        self._made = 0
        self._end = time.monotonic() + retry.total_timeout

    def begin(self) -> float:
        """Begins an attempt. Returns its timeout."""
        self._made += 1
        return min(self._retry.attempt_timeout, max(self._end - time.monotonic(), 0.001))

    def backoff(self, retry_after: float = 0.0) -> bool:
        """Waits before another attempt. Returns False if attempts or time are used up."""
        if self._made >= self._retry.max_attempts:
            return False
        limit = min(self._retry.initial_backoff * 2.0 ** min(self._made - 1, 60), self._retry.max_backoff)
        pause = retry_after + limit * random.random()
        if time.monotonic() + pause >= self._end:
            return False
        time.sleep(pause)
        return True
