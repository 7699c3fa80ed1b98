"""Asks Everfresh over HTTP to regenerate a page, or makes every page with a tag stale; and what became of it. Needs nothing but Python, and a key that
the serving function has in EVERFRESH_REVALIDATE_KEYS (the template's parameter RevalidateKeys).

    EVERFRESH_KEY=name:secret python revalidate.py https://www.example.com path /products/42 [REQUEST_ID]
    EVERFRESH_KEY=name:secret python revalidate.py https://www.example.com tag products [REQUEST_ID]
    EVERFRESH_KEY=name:secret python revalidate.py https://www.example.com status HANDLE [AFTER]

Send with the same request id again if you do not know whether the first time worked: two requests with one id are one. Prints the answer,
which is JSON.
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
    """What is signed are eight lines: nothing of the request can be changed, and nothing of it used twice."""
    lines = ["everfresh-1", method, host, target, timestamp, nonce, request_id, hashlib.sha256(body).hexdigest()]
    return hmac.new(secret.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()


def ask(site, key, method, target, wish=None, request_id=""):
    """Sends one signed request. Returns the status and what was answered."""
    key_id, secret = key.split(":", 1)
    host = urllib.parse.urlsplit(site).hostname
    body = json.dumps(wish).encode() if wish else b""
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
        # CloudFront signs what it passes on to the function, and does not look at bodies: it must be told their hash.
        headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
    request = urllib.request.Request(site.rstrip("/") + target, body or None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode(errors="replace")
    except urllib.error.URLError as failure:
        sys.exit(f"{site} cannot be reached: {failure.reason}")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5) or sys.argv[2] not in ("path", "tag", "status") or "EVERFRESH_KEY" not in os.environ:
        sys.exit(__doc__)
    site, verb, what, *more = sys.argv[1:]
    if not site.startswith(("https://", "http://")) or ":" not in os.environ["EVERFRESH_KEY"]:
        sys.exit("the site must begin with https:// or http://, and EVERFRESH_KEY must be name:secret")
    if verb == "status":
        target = f"/_everfresh/requests/{what}" + "".join(f"?after={seq}" for seq in more)
        status, said = ask(site, os.environ["EVERFRESH_KEY"], "GET", target)
    else:
        status, said = ask(site, os.environ["EVERFRESH_KEY"], "POST", "/_everfresh/revalidate", {verb: what}, *more)
    if status not in (200, 202):
        sys.exit(f"{status}: {said}")
    print(json.dumps(said))
