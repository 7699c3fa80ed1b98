"""Idempotency keys, and the handles by which the state of a request is read."""

import hashlib
import secrets


def generate_key() -> str:
    """A unique key (128 random bits), for a request that may have to be sent again."""
    return f"auto-{secrets.token_hex(16)}"


def prewarm_key(path: str, deployment: int, policy: str) -> str:
    """The key under which a deployment prewarms a page at most once.

    The path is hashed as written: write it the same way each time. For `prewarm` only: a second
    `changed` request under one key would be ignored.
    """
    digest = hashlib.sha256()
    page_hash = hashlib.sha256(path.encode()).hexdigest()
    # Length-prefixed, so that no two lists of fields give the same bytes.
    for field in (b"everfresh-prewarm", page_hash.encode(), deployment.to_bytes(8, "big"), policy.encode()):
        digest.update(len(field).to_bytes(8, "big") + field)
    return f"prewarm-{digest.hexdigest()}"


def page_handle(path: str, key: str, sent_ms: int | None = None) -> str:
    """The handle of a request for one page, `<page hash>.<key>@<milliseconds>`.

    The path must be the canonical one, as `everfresh page show` prints it: without parameters that
    the route ignores, and with the others sorted.
    """
    handle = f"{hashlib.sha256(path.encode()).hexdigest()}.{key}"
    return handle if sent_ms is None else f"{handle}@{sent_ms}"
