"""An `everfresh dev` of its own with an origin, behind proxies; and an HTTP server by which the tests
of the clients inject faults, kill `dev`, and ask how their requests have ended."""

import collections
import hashlib
import http.server
import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time

import boto3
import jsonschema
from botocore.credentials import Credentials
from proxy import NETWORK, THROTTLING, Proxy

CONFIG = """[tenant.demo]
hosts = ["localhost", "127.0.0.1"]
render = {{ http = "http://127.0.0.1:{port}" }}

[[tenant.demo.route]]
path = "/{{suite}}/{{id}}"
revalidate = "10m"
tags = ["suite-{{suite}}"]
"""
# Short, so that another worker soon takes over what a killed one had claimed.
LADDER = {
    "EVERFRESH_RENDER_DEADLINE_MS": "2000", "EVERFRESH_FUNCTION_TIMEOUT_MS": "5000", "EVERFRESH_CLAIM_EXPIRY_MS": "6000",
    "EVERFRESH_VISIBILITY_MS": "31000", "EVERFRESH_LEASE_MS": "3000", "EVERFRESH_RENEW_INTERVAL_MS": "1000",
    "EVERFRESH_CLOCK_ERROR_MS": "300",
}  # fmt: skip
SQS_THROTTLED = b'{"__type":"com.amazonaws.sqs#RequestThrottled","message":"injected"}'
ENDINGS = {60: "committed", 61: "unchanged", 62: "covered", 63: "bypassed"}
DEADLINE = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answer(status, content_type, body):
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nretry-after: 1\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class World:
    def __init__(self, binary, folder, schema):
        self.binary, self.folder, self.schema = binary, folder, schema
        self.key = f"clients:{secrets.token_hex(32)}"
        self.renders = collections.Counter()
        origin = self._listen(self._origin())
        (folder / "everfresh.toml").write_text(CONFIG.format(port=origin.server_port))
        self.pages_port, self.aws_port = free_port(), free_port()
        self.sqs_proxy = Proxy(self.aws_port, answer("400 Bad Request", "application/x-amz-json-1.0", SQS_THROTTLED), Credentials("local", "local"))
        self.site_proxy = Proxy(self.pages_port, answer("429 Too Many Requests", "application/json", b"{}"))
        self.endpoints = self._start()
        self.control = self._listen(self._commands())
        local = {
            "endpoint_url": self.endpoints["aws"], "region_name": self.endpoints["region"],
            "aws_access_key_id": self.endpoints["access_key"], "aws_secret_access_key": self.endpoints["secret_key"],
        }  # fmt: skip
        self.sqs, self.dynamodb = boto3.client("sqs", **local), boto3.client("dynamodb", **local)

    def environment(self):
        """What a test must know, as one variable."""
        stack = self.endpoints["stack"]
        return {
            "control": f"http://127.0.0.1:{self.control.server_port}", "site": self.site_proxy.url, "key": self.key,
            "sqs": self.sqs_proxy.url, "queue": stack["queue"].replace(self.endpoints["aws"], self.sqs_proxy.url),
            "low_priority": stack["low_priority_queue"].replace(self.endpoints["aws"], self.sqs_proxy.url),
            **{name: self.endpoints[name] for name in ("region", "access_key", "secret_key")},
        }  # fmt: skip

    def _start(self):
        self.log = (self.folder / "dev.log").open("a")
        command = [
            self.binary, "dev", "--json", "--data", self.folder / "data", "--config", self.folder / "everfresh.toml",
            "--port", str(self.pages_port), "--aws-port", str(self.aws_port),
        ]  # fmt: skip
        more = LADDER | {"EVERFRESH_REVALIDATE_KEYS": self.key, "EVERFRESH_REVALIDATE_PER_MINUTE": "6000"}
        self.dev = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, env=os.environ | more, text=True)
        line = self.dev.stdout.readline()
        if not line:
            raise RuntimeError(f"dev did not start: {(self.folder / 'dev.log').read_text()[-2000:]}")
        if not line.startswith("{\""):
            raise RuntimeError(line + self.dev.stdout.read())
        return json.loads(line)

    def stop(self):
        self.dev.kill()
        self.dev.wait()
        self.dev.stdout.close()
        self.log.close()

    def _listen(self, handler):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def _origin(world):
        class Origin(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                world.renders[self.path] += 1
                time.sleep(0.05)
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(f"<p>{self.path}</p>".encode())

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except ConnectionError:
                    # The worker was killed.
                    self.close_connection = True

            def log_message(self, *_):
                pass

        return Origin

    def _commands(world):
        class Commands(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                given = json.loads(self.rfile.read(int(self.headers["content-length"])))
                result = {"/faults": world.inject, "/kill": world.kill, "/ended": world.ended}[self.path](**given)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(result).encode())

            def log_message(self, *_):
                pass

        return Commands

    def inject(self, kind="none", rate=0.5, seed=1):
        if kind == "keep":
            return self.sqs_proxy.calm(), self.site_proxy.calm()
        kinds = {"none": (), "network": NETWORK, "throttling": THROTTLING, "lost answers": ("cut before the answer",)}
        for proxy in (self.sqs_proxy, self.site_proxy):
            proxy.inject(kinds[kind], rate, seed)
        return None

    def kill(self, down=1.0):
        """Kills dev as a power cut would, and starts it again after a while on the same ports."""
        self.dev.send_signal(signal.SIGKILL)
        self.stop()
        time.sleep(down)
        self._start()

    def ended(self, requests):
        """Waits until the records of the requests are completed and the queues are empty. Each request
        is to have a page of its own. Returns what was counted."""
        began = time.monotonic()
        while True:
            rows = [self._records(request["path"]) for request in requests]
            waiting = {name: self._waiting(name) for name in ("queue", "low_priority_queue", "dead_letter_queue")}
            done = all(rows) and all(row["status"]["S"] == "COMPLETED" for page in rows for row in page)
            if (done and not any(waiting.values())) or time.monotonic() > began + DEADLINE:
                break
            time.sleep(0.2)
        records = [row for page in rows for row in page]
        seen = collections.Counter(ENDINGS.get(int(event["M"]["seq"]["N"]) % 100) for row in records for event in row["events"]["L"])
        keys = {(request["path"], f"REQ#{request['key']}") for request in requests}
        proxies = (self.sqs_proxy, self.site_proxy)
        return {
            "requests": len(requests),
            "records": len(records),
            "own records": sum((path, row["sk"]["S"]) in keys for (path, page) in zip((r["path"] for r in requests), rows, strict=True) for row in page),
            "completed": sum(row["status"]["S"] == "COMPLETED" for row in records),
            "endings": sum(seen[ending] for ending in ENDINGS.values()),
            "committed": seen["committed"],
            "renders": sum(self.renders[request["path"]] for request in requests),
            "waiting": waiting,
            "attempts": sum(proxy.requests for proxy in proxies),
            "stored": self.sqs_proxy.stored,
            "seconds": round(time.monotonic() - began, 1),
            "faults": dict(sum((proxy.injected for proxy in proxies), collections.Counter())),
        }  # fmt: skip

    def _records(self, path):
        partition = f"TENANT#demo#CACHE#{hashlib.sha256(path.encode()).hexdigest()}"
        found = self.dynamodb.query(
            TableName=self.endpoints["stack"]["table"], ConsistentRead=True,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :req)",
            ExpressionAttributeValues={":pk": {"S": partition}, ":req": {"S": "REQ#"}},
        )  # fmt: skip
        return found["Items"]

    def _waiting(self, queue):
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.endpoints["stack"][queue], AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def check_messages(self, producer):
        """That what the client sent is valid by the published schema and has the client's attributes.
        Returns how many messages there were."""
        validator, checked = jsonschema.Draft202012Validator(self.schema), 0
        for message in self.sqs_proxy.messages:
            names = {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}
            if names.get("everfresh-producer") != producer:
                continue
            body = json.loads(message["MessageBody"])
            validator.validate(body)
            assert names["everfresh-contract"] == str(self.schema["properties"]["v"]["const"]), names
            assert "idempotency_key" in body and message["MessageGroupId"] == "demo", body
            checked += 1
        return checked
