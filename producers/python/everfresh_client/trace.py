"""Trace context of the producer, which links a regeneration to the operation that caused it."""

import dataclasses
import re

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]*)?")
_MEMBER = re.compile(r" *[!-<>-~][!-<>-~ ]*=[ -+\--~]+")
_XRAY_ID = "1-[0-9a-f]{8}-[0-9a-f]{24}"
_XRAY_FIELD = re.compile(rf" *((Root|Self)={_XRAY_ID}|Parent=[0-9a-f]{{16}}|Sampled=[01?]|Lineage=[ -~]+) *")


@dataclasses.dataclass(frozen=True)
class Trace:
    """W3C and X-Ray trace context. Malformed values are dropped, as the W3C specification requires:
    a request does not need a trace."""

    traceparent: str | None = None
    tracestate: str | None = None
    # The HTTP header `X-Amzn-Trace-Id`, or a Lambda function's `_X_AMZN_TRACE_ID`.
    xray: str | None = None

    def __post_init__(self):
        if self.traceparent is not None and not _is_traceparent(self.traceparent):
            object.__setattr__(self, "traceparent", None)
        if self.tracestate is not None and not (self.traceparent and _is_tracestate(self.tracestate)):
            object.__setattr__(self, "tracestate", None)
        if self.xray is not None and not _is_xray(self.xray):
            object.__setattr__(self, "xray", None)


def _is_traceparent(text: str) -> bool:
    # Version 00 has exactly four parts; a later one may add parts.
    return bool(_PARENT.fullmatch(text)) and len(text) <= 128 and (len(text) == 55 or not text.startswith("00"))


def _is_tracestate(text: str) -> bool:
    members = [member for member in text.split(",") if member.strip()]
    return 1 <= len(members) <= 32 and len(text) <= 512 and all(_MEMBER.fullmatch(member) for member in members)


def _is_xray(text: str) -> bool:
    fields = text.split(";")
    rooted = any(field.strip().startswith("Root=") for field in fields)
    return rooted and len(text) <= 256 and all(_XRAY_FIELD.fullmatch(field) for field in fields)
