"""The client against a real `everfresh dev` with faults on the way. `scripts/clients` starts both and
describes them in EVERFRESH_CLIENTS."""

import concurrent.futures
import json
import os
import threading
import unittest
import urllib.request

from everfresh_client import Message, Queues, Retry, Sender, Sent, Trace, Trigger, TriggerError, sqs_client

WORLD = json.loads(os.environ.get("EVERFRESH_CLIENTS", "null"))
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# Longer than an outage of the tests.
PATIENT = Retry(max_attempts=60, attempt_timeout=1.0, total_timeout=60.0, max_backoff=0.5)


def control(command, **given):
    request = urllib.request.Request(f"{WORLD['control']}/{command}", json.dumps(given).encode())
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def at_once(call, items):
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        return list(pool.map(call, items))


@unittest.skipUnless(WORLD, "run by scripts/clients")
class Dev(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = sqs_client(
            PATIENT, endpoint_url=WORLD["sqs"], region_name=WORLD["region"],
            aws_access_key_id=WORLD["access_key"], aws_secret_access_key=WORLD["secret_key"],
        )  # fmt: skip
        queues = Queues(WORLD["queue"], WORLD["low_priority"])
        cls.sender = Sender(cls.client, queues, producer=("python", "1"), retry=PATIENT)
        cls.trigger = Trigger(WORLD["site"], WORLD["key"], retry=PATIENT)

    def setUp(self):
        control("faults")
        self.suite = self.id().rpartition(".test_")[2].replace("_", "-")[:40]

    def messages(self, count, **fields):
        return [Message("demo", path=f"/python-{self.suite}/{number}", **fields) for number in range(count)]

    def assert_each_ends_once(self, requests):
        """`requests` are paths and keys."""
        control("faults", kind="keep")
        counted = control("ended", requests=[{"path": path, "key": key} for path, key in requests])
        print(f"python: {self.suite}: {json.dumps(counted)}", flush=True)
        for count in ("records", "own records", "completed", "endings", "committed"):
            self.assertEqual(counted[count], len(requests), f"{count}: {counted}")
        self.assertFalse(any(counted["waiting"].values()), counted)
        return counted

    def test_requests_end_once(self):
        one, *rest = self.messages(25)
        trace = Trace(PARENT, "congo=t61rcWkgMzE", "Root=1-5759e988-bd862e3fe1be46a994272793")
        sent = [self.sender.send(one, trace=trace), *self.sender.send_all(rest)]
        tagged = self.sender.send(Message("demo", tag=f"suite-{self.suite}"))
        self.assert_each_ends_once([(message.path, result.key) for message, result in zip([one, *rest], sent)])
        self.assertEqual(self.trigger.wait(sent[0].handle).state, "completed")
        self.assertEqual(self.trigger.wait(tagged.handle).state, "completed")

    def test_network_cut(self):
        messages = self.messages(40)
        control("faults", kind="network", rate=0.5)
        sent = at_once(self.sender.send, messages)
        counted = self.assert_each_ends_once([(message.path, one.key) for message, one in zip(messages, sent)])
        self.assertGreater(counted["stored"], counted["requests"], "no message was sent twice")

    def test_network_cut_in_batches(self):
        messages = self.messages(60)
        control("faults", kind="network", rate=0.5, seed=2)
        sent = self.sender.send_all(messages)
        self.assert_each_ends_once([(message.path, one.key) for message, one in zip(messages, sent)])

    def test_throttling(self):
        messages = self.messages(40)
        control("faults", kind="throttling", rate=0.6)
        sent = at_once(self.sender.send, messages)
        counted = self.assert_each_ends_once([(message.path, one.key) for message, one in zip(messages, sent)])
        self.assertGreater(counted["faults"]["throttled"], 0)

    def test_restart_of_dev(self):
        messages = self.messages(60)
        killed = threading.Thread(target=control, args=("kill",))

        def send(message):
            if message is messages[20]:
                killed.start()
            return self.sender.send(message)

        sent = at_once(send, messages)
        killed.join()
        self.assert_each_ends_once([(message.path, one.key) for message, one in zip(messages, sent)])

    def test_signed_requests(self):
        paths = [message.path for message in self.messages(40)]
        control("faults", kind="network", rate=0.4, seed=3)
        killed = threading.Thread(target=control, args=("kill",))

        def revalidate(path):
            if path is paths[20]:
                killed.start()
            return self.trigger.revalidate(path=path)

        accepted = at_once(revalidate, paths)
        killed.join()
        self.assert_each_ends_once([(path, one.key) for path, one in zip(paths, accepted)])
        status = self.trigger.wait(accepted[0].handle)
        self.assertEqual((status.state, status.ended), ("completed", True))
        self.assertEqual(self.trigger.status(accepted[0].handle, status.after).events, [])

    def test_signed_requests_throttled(self):
        paths = [message.path for message in self.messages(10)]
        control("faults", kind="throttling", rate=0.4, seed=4)
        accepted = at_once(lambda path: self.trigger.revalidate(path=path), paths)
        self.assert_each_ends_once([(path, one.key) for path, one in zip(paths, accepted)])

    def test_double_fires(self):
        messages = [message for message in self.messages(10) for _ in range(3)]
        sent = at_once(self.sender.send_once, messages[:9])
        counted = self.assert_each_ends_once(sorted({(message.path, one.key) for message, one in zip(messages[:9], sent)}))
        self.assertEqual((len({one.key for one in sent}), counted["stored"]), (3, 3))
        path = messages[-1].path
        accepted = at_once(lambda _: self.trigger.revalidate_once(path=path), range(3))
        self.assertEqual(len({one.key for one in accepted}), 1)

    def test_prewarmed_once(self):
        messages = [message.with_prewarm_key(7, "policy-3") for message in self.messages(5, reason="prewarm")]
        for _ in range(2):
            results = self.sender.send_all(messages)
            self.assertTrue(all(isinstance(one, Sent) for one in results), results)
        self.assert_each_ends_once([(message.path, message.key) for message in messages])

    def test_without_a_key_a_lost_answer_is_a_second_request(self):
        """The harness sees what the client prevents: here the SDK retries a message without a key."""
        control("faults", kind="lost answers", rate=0.5, seed=5)
        retrying = sqs_client(
            endpoint_url=WORLD["sqs"], region_name=WORLD["region"],
            aws_access_key_id=WORLD["access_key"], aws_secret_access_key=WORLD["secret_key"],
        )  # fmt: skip
        bodies = [message.to_json() for message in self.messages(10)]

        def send(body):
            for _ in range(20):
                try:
                    return retrying.send_message(QueueUrl=WORLD["queue"], MessageBody=body)
                except Exception:
                    continue

        at_once(send, bodies)
        control("faults", kind="keep")
        counted = control("ended", requests=[{"path": message.path, "key": "none"} for message in self.messages(10)])
        print(f"python: {self.suite}: {json.dumps(counted)}", flush=True)
        self.assertGreater(counted["stored"], 10)

    def test_wrong_key_is_refused_without_retries(self):
        forged = Trigger(WORLD["site"], WORLD["key"][:-1] + ("1" if WORLD["key"].endswith("0") else "0"), retry=PATIENT)
        with self.assertRaises(TriggerError) as caught:
            forged.revalidate(tag="everything")
        self.assertEqual(caught.exception.status, 401)


if __name__ == "__main__":
    unittest.main()
