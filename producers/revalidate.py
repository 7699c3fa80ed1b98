"""Sends a signed HTTP request to regenerate a page or to make every page with a tag stale, or reads
the status of such a request. Needs only Python and a key from EVERFRESH_REVALIDATE_KEYS of the
serving function (template parameter RevalidateKeys).

    EVERFRESH_KEY=name:secret python revalidate.py https://www.example.com path /products/42 [REQUEST_ID]
    EVERFRESH_KEY=name:secret python revalidate.py https://www.example.com tag products [REQUEST_ID]
    EVERFRESH_KEY=name:secret python revalidate.py https://www.example.com status HANDLE [AFTER]

If the outcome is unknown, send again with the same request id: two requests with one id are one.
Prints the response as JSON.
"""

import hashlib
import hmac
import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


def signature(secret, method, host, target, timestamp, nonce, request_id, body):
    """Signs eight lines that cover the whole request, so that it can be neither changed nor
    replayed."""
    lines = ["everfresh-1", method, host, target, timestamp, nonce, request_id, hashlib.sha256(body).hexdigest()]
    return hmac.new(secret.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()


def send_signed(site, key, method, target, content=None, request_id=""):
    """Sends one signed request. Returns the HTTP status and the response body."""
    key_id, secret = key.split(":", 1)
    host = urllib.parse.urlsplit(site).hostname
    body = json.dumps(content).encode() if content else b""
    timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
    headers = {
        "x-everfresh-key-id": key_id,
        "x-everfresh-timestamp": timestamp,
        "x-everfresh-nonce": nonce,
        "x-everfresh-signature": signature(secret, method, host, target, timestamp, nonce, request_id, body),
    }
    if request_id:
        headers["x-request-id"] = request_id
    if body:
        headers["content-type"] = "application/json"
        # CloudFront signs origin requests without reading the body: the client must send its hash.
        headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
    request = urllib.request.Request(site.rstrip("/") + target, body or None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except urllib.error.URLError as failure:
        sys.exit(f"{site} cannot be reached: {failure.reason}")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5) or sys.argv[2] not in ("path", "tag", "status") or "EVERFRESH_KEY" not in os.environ:
        sys.exit(__doc__)
    site, command, value, *more = sys.argv[1:]
    if not site.startswith(("https://", "http://")) or ":" not in os.environ["EVERFRESH_KEY"]:
        sys.exit("the site must begin with https:// or http://, and EVERFRESH_KEY must be name:secret")
    if command == "status":
        target = f"/_everfresh/requests/{value}" + "".join(f"?after={seq}" for seq in more)
        status, response = send_signed(site, os.environ["EVERFRESH_KEY"], "GET", target)
    else:
        key, target = os.environ["EVERFRESH_KEY"], "/_everfresh/revalidate"
        status, response = send_signed(site, key, "POST", target, {command: value}, *more)
    if status not in (200, 202):
        sys.exit(f"{site} answered HTTP {status}: {response}")
    print(json.dumps(response))
