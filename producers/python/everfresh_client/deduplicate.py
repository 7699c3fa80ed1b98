"""Deduplicates calls for the same request: a click, webhook or save that fires twice.

Equal calls in the same 100 ms window of one process are duplicates. Of `expired` and `prewarm` calls
the first is sent and the rest are dropped, because any fresh page covers them all. A `changed` call
is never dropped: it may report a change made after an earlier message was sent. Such calls wait for
the end of their window and share one message, which is sent after the last of them.
"""

import threading
import time

# In seconds.
WINDOW = 0.1

# How many windows a call is remembered.
WINDOWS_KEPT = 2

# Bounds memory. Calls beyond it are sent without deduplication, which costs a message but never
# loses a request.
MAX_CALLS = 1_000


class _Shared:
    """One send for all equal `changed` calls of a window, by whichever thread is first."""

    def __init__(self, send):
        self._send = send
        self._lock = threading.Lock()
        self._outcome = None

    def outcome(self):
        # An exception that is not the send's own, such as KeyboardInterrupt, leaves it unset: then
        # the next thread sends.
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = (self._send(), None)
                except Exception as error:
                    self._outcome = (None, error)
        sent, error = self._outcome
        if error is not None:
            raise error
        return sent


class RecentCalls:
    def __init__(self):
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._calls = {}
        self._swept_in = 0

    def share(self, request, send):
        """Waits for the end of the window, and shares one `send` with equal calls of it."""
        window = self._window()
        with self._lock:
            shared = self._remember(request, window, _Shared(send))
        while (remaining := self._began + (window + 1) * WINDOW - time.monotonic()) > 0:
            time.sleep(remaining)
        return shared.outcome()

    def lead(self, request, send):
        """Sends at once if no equal call of the window did, else returns None."""
        window, own = self._window(), object()
        with self._lock:
            if self._remember(request, window, own) is not own:
                return None
        try:
            return send()
        except BaseException:
            # The next equal call is sent.
            with self._lock:
                self._calls.pop((window, request), None)
            raise

    def _remember(self, request, window, call):
        """The call that is remembered for this request and window: this one if it is the first."""
        if self._swept_in != window:
            self._swept_in = window
            self._calls = {key: value for key, value in self._calls.items() if key[0] + WINDOWS_KEPT > window}
        if (window, request) not in self._calls and len(self._calls) >= MAX_CALLS:
            return call
        return self._calls.setdefault((window, request), call)

    def _window(self):
        return int((time.monotonic() - self._began) / WINDOW)
