"""What is one call: no network."""

import threading
import time
import unittest
import unittest.mock

from everfresh_client import deduplicate
from everfresh_client.deduplicate import RecentCalls


def at_once(count, call):
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Deduplication(unittest.TestCase):
    def setUp(self):
        # Long, so that calls of one window stay in it on a busy machine.
        window = unittest.mock.patch.object(deduplicate, "WINDOW", 0.5)
        window.start()
        self.addCleanup(window.stop)
        self.recent, self.sent, self.results = RecentCalls(), [], []

    def send(self):
        self.sent.append(time.monotonic())
        return len(self.sent)

    def test_changed_calls_share_one_send_after_the_last(self):
        called = []

        def call():
            called.append(time.monotonic())
            self.results.append(self.recent.share("/a", self.send))

        at_once(5, call)
        self.assertEqual((len(self.sent), self.results), (1, [1] * 5))
        self.assertGreaterEqual(self.sent[0], max(called))

    def test_changed_call_never_joins_an_earlier_send(self):
        first = self.recent.share("/a", self.send)
        second = self.recent.share("/a", self.send)
        self.assertEqual((first, second), (1, 2))

    def test_other_requests_are_sent_separately(self):
        at_once(3, lambda: self.recent.share(str(threading.get_ident()), self.send))
        self.assertEqual(len(self.sent), 3)

    def test_expired_call_is_sent_at_once_and_its_duplicates_dropped(self):
        began = time.monotonic()
        self.assertEqual([self.recent.lead("/a", self.send) for _ in range(3)], [1, None, None])
        self.assertLess(self.sent[0] - began, deduplicate.WINDOW / 2)

    def test_failed_lead_lets_the_next_call_send(self):
        def fail():
            raise OSError

        with self.assertRaises(OSError):
            self.recent.lead("/a", fail)
        self.assertEqual(self.recent.lead("/a", self.send), 1)

    def test_failed_send_fails_all_calls_that_share_it(self):
        def fail():
            self.sent.append(0)
            raise OSError

        def call():
            with self.assertRaises(OSError):
                self.recent.share("/a", fail)
            self.results.append("failed")

        at_once(3, call)
        self.assertEqual((len(self.sent), self.results), (1, ["failed"] * 3))

    def test_memory_is_bounded(self):
        for number in range(deduplicate.MAX_CALLS + 10):
            self.recent.lead(str(number), self.send)
        self.assertLessEqual(len(self.recent._calls), deduplicate.MAX_CALLS)
        self.assertEqual(len(self.sent), deduplicate.MAX_CALLS + 10)


if __name__ == "__main__":
    unittest.main()
