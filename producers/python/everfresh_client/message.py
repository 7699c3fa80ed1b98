"""The queue message, version 1."""

import dataclasses
import json
from typing import Literal

from . import schema
from .keys import prewarm_key

# Version of the message and of the meaning of its attributes.
VERSION: int = schema.PUBLISHED["properties"]["v"]["const"]

# The limit of SQS, for the body together with the attributes.
MAX_MESSAGE_BYTES = 256 * 1024

Reason = Literal["changed", "expired", "prewarm"]


class MessageError(ValueError):
    """The message is invalid: every worker would reject it. Names the field, never its value."""


class UnsupportedVersion(MessageError):
    """The message has a version that this client does not know."""

    def __init__(self, found: int):
        super().__init__(f"the message has version {found}; this client knows version {VERSION}")
        self.found = found


@dataclasses.dataclass(frozen=True)
class Message:
    """One request to regenerate a page (`path`), or every page that carries a `tag`.

    Always valid: what the published schema refuses raises `MessageError` here.
    """

    tenant: str
    path: str | None = None
    tag: str | None = None
    reason: Reason = "changed"
    # Identifies the request. Without it, the sender generates one.
    key: str | None = None

    def __post_init__(self):
        found = list(schema.problems(schema.PUBLISHED, self._fields()))
        if found:
            raise MessageError("; ".join(found))

    def _fields(self) -> dict:
        fields = {"v": VERSION, "tenant": self.tenant, "path": self.path, "tag": self.tag, "reason": self.reason}
        fields["idempotency_key"] = self.key
        return {name: value for name, value in fields.items() if value is not None}

    def to_json(self) -> str:
        return json.dumps(self._fields(), separators=(",", ":"))

    @classmethod
    def parse(cls, body: str | bytes) -> "Message":
        """Parses and validates a message body, also of another producer."""
        if len(body) > MAX_MESSAGE_BYTES:
            raise MessageError(f"message has {len(body)} bytes, allowed are {MAX_MESSAGE_BYTES}")
        try:
            fields = json.loads(body, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError) as error:
            raise error if isinstance(error, MessageError) else MessageError("message is not JSON") from None
        # First: fields of a later version are reported as that version, not as unknown.
        version = fields.get("v") if isinstance(fields, dict) else None
        if isinstance(version, int) and not isinstance(version, bool) and version != VERSION:
            raise UnsupportedVersion(version)
        found = list(schema.problems(schema.PUBLISHED, fields))
        if found:
            raise MessageError("; ".join(found))
        key = fields.get("idempotency_key")
        return cls(fields["tenant"], fields.get("path"), fields.get("tag"), fields.get("reason", "changed"), key)

    def with_key(self, key: str) -> "Message":
        return dataclasses.replace(self, key=key)

    def with_prewarm_key(self, deployment: int, policy: str) -> "Message":
        """Sets the key of a `prewarm` message: prewarming the page again costs no render."""
        if self.reason != "prewarm" or self.path is None:
            raise MessageError("a prewarm key needs reason `prewarm` and a path: under it a second change would be ignored")
        return self.with_key(prewarm_key(self.path, deployment, policy))


def _without_duplicates(pairs):
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise MessageError("a field occurs twice")
    return fields
