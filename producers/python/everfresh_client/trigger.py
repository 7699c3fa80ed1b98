"""Signed HTTP requests to the serving function, for systems without AWS credentials. Needs only
Python, and a key from `EVERFRESH_REVALIDATE_KEYS` (template parameter `RevalidateKeys`)."""

import dataclasses
import hashlib
import hmac
import http.client
import json
import re
import secrets
import time
import urllib.parse

from .deduplicate import RecentCalls
from .keys import generate_key
from .retry import Attempts, Failure, Retry

# States after which a request does not change any more by itself.
ENDED = frozenset({"completed", "bypassed", "rejected", "pinned"})

_REVALIDATE = "/_everfresh/revalidate"
_REQUESTS = "/_everfresh/requests/"
_HANDLE = re.compile(r"([0-9a-f]{64}|inval)\.[A-Za-z0-9._~:-]{1,128}(@[0-9]{1,19})?")


@dataclasses.dataclass(frozen=True)
class Accepted:
    """The queue has the request. `handle` has the time of sending, by the server's clock."""

    key: str
    handle: str


@dataclasses.dataclass(frozen=True)
class Status:
    """State of a request, and its events after the number that was given."""

    state: str
    attempts: int
    error_class: str | None
    events: list[dict]
    # Give it to the next `Trigger.status`.
    after: int

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class TriggerError(Exception):
    """The request was refused, or its outcome is unknown. `status` is that of the last answer; None
    without one. Sending the request again under `key` is safe."""

    def __init__(self, why: str, status: int | None, key: str | None):
        super().__init__(why)
        self.status, self.key = status, key


class Trigger:
    """Sends signed requests to one site. Threads may share it."""

    def __init__(self, site: str, key: str, *, retry: Retry = Retry()):
        """`key` is `NAME:SECRET`."""
        url = urllib.parse.urlsplit(site)
        name, separator, secret = key.partition(":")
        if url.scheme not in ("https", "http") or not url.hostname or url.path.strip("/") or not site.isascii():
            raise ValueError("the site must be https://HOST, without a path")
        if not (name and separator and secret):
            raise ValueError("the key must be NAME:SECRET")
        self._url, self._name, self._secret, self._retry = url, name, secret, retry
        self._host = url.hostname.rstrip(".")
        self._recent = RecentCalls()

    def revalidate(self, *, path: str | None = None, tag: str | None = None, key: str | None = None) -> Accepted:
        """Requests a page, or makes every page with a tag stale. The reason is always `changed`."""
        content, key = _target(path, tag), key or generate_key()
        answer = self._call("POST", _REVALIDATE, json.dumps(content).encode(), key)
        # The handle with the time of sending, of which the answer to a status depends.
        return Accepted(answer["key"], answer["status_url"].removeprefix(_REQUESTS))

    def revalidate_once(self, *, path: str | None = None, tag: str | None = None) -> Accepted:
        """Sends one request for all equal calls within 100 ms, at the end of that time."""
        _target(path, tag)
        key = generate_key()
        return self._recent.share((path, tag), lambda: self.revalidate(path=path, tag=tag, key=key))

    def status(self, handle: str, after: int = 0) -> Status:
        """The state of a request, by the handle of `Accepted` or `Sent`."""
        if not _HANDLE.fullmatch(handle):
            raise ValueError("the handle must be <page hash>.<key> or inval.<key>, with or without @<milliseconds>")
        answer = self._call("GET", f"{_REQUESTS}{handle}" + (f"?after={after}" if after else ""), b"", "")
        return Status(answer["state"], answer["attempts"], answer["error_class"], answer["events"], answer["after"])

    def wait(self, handle: str, timeout: float = 60.0, pause: float = 0.5) -> Status:
        """Reads the state until the request has ended. After the timeout, the last state."""
        end = time.monotonic() + timeout
        while True:
            status = self.status(handle)
            if status.ended or time.monotonic() + pause > end:
                return status
            time.sleep(pause)

    def _call(self, method: str, target: str, body: bytes, key: str) -> dict:
        attempts, status = Attempts(self._retry), None
        while True:
            status = None
            try:
                status, answer, retry_after = self._attempt(method, target, body, key, attempts.begin())
                if status in (200, 202):
                    return json.loads(answer)
                why = f"{self._host} answered HTTP {status}: {answer[:500].decode(errors='replace')}"
                raise Failure(why, transient=status == 429 or status >= 500, retry_after=retry_after)
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure = Failure(f"{self._host}: {error or type(error).__name__}", transient=True)
            except Failure as error:
                failure = error
            if not failure.transient or not attempts.backoff(failure.retry_after):
                raise TriggerError(str(failure), status, key or None) from failure

    def _attempt(self, method, target, body, key, timeout):
        """One request, signed anew: a nonce counts once. Redirects are not followed."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname, self._url.port, timeout=timeout)
        try:
            connection.request(method, target, body or None, self._headers(method, target, body, key))
            answer = connection.getresponse()
            after = answer.getheader("retry-after") or ""
            return answer.status, answer.read(), float(after) if after.isdecimal() else 0.0
        finally:
            connection.close()

    def _headers(self, method, target, body, key):
        timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
        headers = {
            "x-everfresh-key-id": self._name,
            "x-everfresh-timestamp": timestamp,
            "x-everfresh-nonce": nonce,
            "x-everfresh-signature": signature(self._secret, method, self._host, target, timestamp, nonce, key, body),
        }
        if key:
            headers["x-request-id"] = key
        if body:
            headers["content-type"] = "application/json"
            # CloudFront signs origin requests without reading the body: the client sends its hash.
            headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
        return headers


def signature(secret, method, host, target, timestamp, nonce, request_id, body):
    """Signs eight lines that cover the whole request, so that it can be neither changed nor
    replayed."""
    lines = ["everfresh-1", method, host, target, timestamp, nonce, request_id, hashlib.sha256(body).hexdigest()]
    return hmac.new(secret.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()


def _target(path, tag):
    if (path is None) == (tag is None):
        raise ValueError("give exactly one of path and tag")
    return {"path": path} if tag is None else {"tag": tag}
