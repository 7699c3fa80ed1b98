"""An HTTP proxy in front of `everfresh dev` that injects network faults."""

import collections
import http.client
import json
import random
import socket
import socketserver
import struct
import threading

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

# What happens to a request instead of an answer.
NETWORK = ("refused", "cut in the request", "cut before the answer", "cut in the answer", "stalled")
THROTTLING = ("throttled", "unavailable")


class Proxy(socketserver.ThreadingTCPServer):
    """Forwards to one port on loopback. Faults are drawn by a seeded generator, in the order of the
    requests."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = 64

    def __init__(self, upstream, throttled, credentials=None):
        super().__init__(("127.0.0.1", 0), Connection)
        self.upstream, self.throttled, self._credentials = upstream, throttled, credentials
        self._lock = threading.Lock()
        self.inject((), 0, 0)
        self.messages = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def inject(self, kinds, rate, seed):
        """From now on, this part of the requests has one of these faults. Resets the counters."""
        with self._lock:
            self._kinds, self._rate, self._random = tuple(kinds), rate, random.Random(seed)
            self.requests, self.injected, self.stored = 0, collections.Counter(), 0

    def calm(self):
        """No faults from now on; the counters stay."""
        self._kinds = ()

    def readdress(self, head, body):
        """`dev` takes requests for its own host and port only, and of AWS requests these are signed."""
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
        headers["host"] = f"127.0.0.1:{self.upstream}"
        if self._credentials:
            kept = {name: headers[name] for name in ("content-type", "x-amz-target")}
            request = AWSRequest("POST", f"http://{headers['host']}{first.split()[1]}", kept, body)
            SigV4Auth(self._credentials, "sqs", "us-east-1").add_auth(request)
            headers = {"host": headers["host"], "content-length": str(len(body))} | dict(request.headers.items())
        return "\r\n".join([first, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode() + body

    def fault(self):
        with self._lock:
            self.requests += 1
            if not self._kinds or self._random.random() >= self._rate:
                return None
            kind = self._random.choice(self._kinds)
            self.injected[kind] += 1
            return kind

    def record(self, request, answer):
        """Counts the messages that SQS has stored, and keeps what was sent for the check by schema."""
        stored = answer.count(b'"MessageId"')
        if stored:
            sent = json.loads(request.partition(b"\r\n\r\n")[2])
            with self._lock:
                self.stored += stored
                self.messages += sent.get("Entries", [sent])

    def handle_error(self, request, client_address):
        """A connection that either side closed is a fault or its consequence."""


class Connection(socketserver.StreamRequestHandler):
    timeout = 60

    def handle(self):
        while request := self._read():
            kind = self.server.fault()
            if kind == "refused":
                return self._reset()
            if kind == "throttled":
                self.wfile.write(self.server.throttled)
                continue
            if kind == "unavailable":
                self.wfile.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
                continue
            answer = self._forward(request[: len(request) // 2] if kind == "cut in the request" else request)
            if kind == "stalled":
                # Until the client gives up.
                return self.connection.recv(1)
            if answer is None or kind == "cut before the answer":
                return self._reset()
            if kind == "cut in the answer":
                self.wfile.write(answer[: len(answer) - 20])
                return self._reset()
            self.wfile.write(answer)

    def _read(self):
        head, length = b"", 0
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline(65536)
            if not line:
                return None
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            head += line
        return self.server.readdress(head, self.rfile.read(length))

    def _forward(self, request):
        """Returns the answer; None if the server is down or the request is cut."""
        try:
            with socket.create_connection(("127.0.0.1", self.server.upstream), timeout=30) as upstream:
                upstream.sendall(request)
                if request.startswith(b"POST") and not self._is_whole(request):
                    return None
                answer = http.client.HTTPResponse(upstream, method=request.split(b" ", 1)[0].decode())
                answer.begin()
                body = answer.read()
        except (OSError, http.client.HTTPException):
            return None
        self.server.record(request, body)
        head = f"HTTP/1.1 {answer.status} {answer.reason}\r\n"
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                head += f"{name}: {value}\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    @staticmethod
    def _is_whole(request):
        head, separator, body = request.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        return bool(separator) and len(body) == sum(lengths)

    def _reset(self):
        """Closes with a reset, as a broken network does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
