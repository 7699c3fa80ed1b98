"""Sends messages to the queues of a deployment. Needs boto3 and sqs:SendMessage on the queue."""

import dataclasses
import time
from collections.abc import Iterable, Mapping

from .deduplicate import RecentCalls
from .keys import generate_key, page_handle
from .message import MAX_MESSAGE_BYTES, VERSION, Message, MessageError
from .retry import Attempts, Failure, Retry
from .trace import Trace

# SQS limit per call.
_MAX_ENTRIES = 10

# Transient errors that SQS returns with a 4xx status.
_TRANSIENT_CODES = {
    "KMS.ThrottlingException", "KmsThrottled", "RequestThrottled", "RequestThrottledException", "RequestTimeout",
    "RequestTimeoutException", "Throttling", "ThrottlingException", "TooManyRequestsException",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Queues:
    """URLs of a deployment's queues."""

    # For `changed` and `expired` requests.
    main: str
    # For `prewarm` requests, which must not delay the others.
    low_priority: str | None = None


@dataclasses.dataclass(frozen=True)
class Sent:
    """A request that is in the queue."""

    message_id: str
    key: str
    # Names the request for `Trigger.status` and `everfresh request show`. Correct if the path was
    # written in its canonical form, and if this machine's clock is right to within a second.
    handle: str


class SendError(Exception):
    """The request was not enqueued, or the outcome is unknown. Sending `message` again, which has
    the key of all attempts, is safe."""

    def __init__(self, queue: str, why: str, message: Message):
        super().__init__(f"sending to {queue}: {why}")
        self.queue, self.why, self.message = queue, why, message

    @property
    def key(self) -> str:
        return self.message.key


def sqs_client(retry: Retry = Retry(), **arguments):
    """A boto3 client for `Sender`: with the timeout of one attempt, and without retries of its own,
    which would multiply those of the sender."""
    import boto3
    from botocore.config import Config

    timeout = retry.attempt_timeout
    own = Config(retries={"total_max_attempts": 1}, connect_timeout=timeout, read_timeout=timeout)
    config = arguments.pop("config", Config()).merge(own)
    return boto3.client("sqs", config=config, **arguments)


class Sender:
    """Enqueues requests. Create it once: threads may share it."""

    def __init__(self, sqs, queues: Queues, *, producer: tuple[str, str] | None = None, retry: Retry = Retry()):
        """`sqs` is a boto3 client, best from `sqs_client`. `producer` is the name and version of
        the sending service."""
        self._sqs, self._queues, self._producer, self._retry = sqs, queues, producer, retry
        self._recent = RecentCalls()

    def send(self, message: Message, *, trace: Trace = Trace(), attributes: Mapping[str, str] | None = None) -> Sent:
        """Sends one message, under one key however often it has to be tried."""
        return self._deliver(self._outbound(message, trace, attributes or {}))

    def send_once(self, message: Message, *, trace: Trace = Trace()) -> Sent | None:
        """Sends one message for all equal calls within 100 ms: see `deduplicate`. Returns None for
        an `expired` or `prewarm` call that an equal one made unnecessary."""
        outbound = self._outbound(message, trace, {})
        share = self._recent.share if message.reason == "changed" else self._recent.lead
        return share(message, lambda: self._deliver(outbound))

    def send_all(self, messages: Iterable[Message], *, trace: Trace = Trace()) -> list["Sent | SendError | MessageError"]:
        """Sends many messages, up to ten per call. Returns one result per message, in order: a
        refused message does not affect the others."""
        results: dict[int, Sent | SendError | MessageError] = {}
        outbound = []
        for index, message in enumerate(messages):
            try:
                outbound.append((index, self._outbound(message, trace, {})))
            except MessageError as error:
                results[index] = error
        for batch in _batches(outbound):
            self._deliver_batch(batch, results)
        return [results[index] for index in sorted(results)]

    def _outbound(self, message: Message, trace: Trace, attributes: Mapping[str, str]) -> "_Outbound":
        message = message if message.key else message.with_key(generate_key())
        queue = self._queues.low_priority if message.reason == "prewarm" else self._queues.main
        if queue is None:
            raise MessageError("reason `prewarm` needs the URL of the low-priority queue")
        texts = {"everfresh-contract": str(VERSION)}
        if self._producer:
            texts["everfresh-producer"], texts["everfresh-producer-version"] = self._producer
        if trace.traceparent:
            texts["traceparent"] = trace.traceparent
        if trace.tracestate:
            texts["tracestate"] = trace.tracestate
        texts.update(attributes)
        outbound = _Outbound(queue, message, message.to_json(), texts, trace.xray)
        if outbound.bytes > MAX_MESSAGE_BYTES:
            raise MessageError(f"message has {outbound.bytes} bytes, allowed are {MAX_MESSAGE_BYTES}")
        return outbound

    def _deliver(self, outbound: "_Outbound") -> Sent:
        attempts, sent_ms = Attempts(self._retry), _now_ms()
        while True:
            attempts.begin()
            try:
                answer = _call(self._sqs.send_message, QueueUrl=outbound.queue, **outbound.request())
                return outbound.sent(answer.get("MessageId"), sent_ms)
            except Failure as failure:
                if not failure.transient or not attempts.backoff():
                    raise outbound.failed(failure) from failure

    def _deliver_batch(self, pending, results):
        """Sends one batch until each of its messages is sent or has finally failed."""
        attempts, sent_ms = Attempts(self._retry), _now_ms()
        while True:
            attempts.begin()
            failed = []
            for (index, outbound), answer in zip(pending, self._attempt_batch([out for _, out in pending]), strict=True):
                try:
                    if isinstance(answer, Failure):
                        raise answer
                    results[index] = outbound.sent(answer, sent_ms)
                except Failure as failure:
                    results[index] = outbound.failed(failure)
                    if failure.transient:
                        failed.append((index, outbound))
            if not failed or not attempts.backoff():
                return
            pending = failed

    def _attempt_batch(self, pending) -> list[str | None | Failure]:
        """One call. Returns a message id or failure per message, in order."""
        entries = [{"Id": str(index), **outbound.request()} for index, outbound in enumerate(pending)]
        try:
            answer = _call(self._sqs.send_message_batch, QueueUrl=pending[0].queue, Entries=entries)
        except Failure as failure:
            return [failure] * len(pending)
        found = {entry["Id"]: entry["MessageId"] for entry in answer.get("Successful", [])}
        for entry in answer.get("Failed", []):
            transient = not entry.get("SenderFault") or entry["Code"] in _TRANSIENT_CODES
            found[entry["Id"]] = Failure(f"{entry['Code']}: {entry.get('Message', '')}", transient=transient)
        return [found.get(entry["Id"]) for entry in entries]


@dataclasses.dataclass(frozen=True)
class _Outbound:
    """A message prepared for its queue, once, so that every attempt sends the same bytes."""

    queue: str
    message: Message
    body: str
    texts: Mapping[str, str]
    xray: str | None

    @property
    def bytes(self) -> int:
        """What SQS counts against its limit."""
        attributes = sum(len(name.encode()) + len("String") + len(value.encode()) for name, value in self.texts.items())
        return len(self.body.encode()) + attributes

    def request(self) -> dict:
        request = {
            "MessageBody": self.body,
            "MessageAttributes": {name: _attribute(value) for name, value in self.texts.items()},
            # SQS fair queues: one tenant's backlog does not delay another tenant's message.
            "MessageGroupId": self.message.tenant,
        }
        if self.xray:
            request["MessageSystemAttributes"] = {"AWSTraceHeader": _attribute(self.xray)}
        return request

    def sent(self, message_id: str | None, sent_ms: int) -> Sent:
        if not message_id:
            raise Failure("SQS returned no message id", transient=True)
        message, key = self.message, self.message.key
        handle = f"inval.{key}" if message.path is None else page_handle(message.path, key, sent_ms)
        return Sent(message_id, key, handle)

    def failed(self, failure: Failure) -> SendError:
        return SendError(self.queue, str(failure), self.message)


def _attribute(text):
    return {"DataType": "String", "StringValue": text}


def _batches(outbound):
    """Splits messages into batches within the SQS limits, one queue each, in order."""
    full, opened = [], {}
    for index, message in outbound:
        batch = opened.setdefault(message.queue, [])
        if len(batch) == _MAX_ENTRIES or sum(out.bytes for _, out in batch) + message.bytes > MAX_MESSAGE_BYTES:
            full.append(batch)
            batch = opened[message.queue] = []
        batch.append((index, message))
    return full + list(opened.values())


def _call(operation, **arguments):
    """Calls SQS. Raises `Failure`, transient if another attempt may succeed: also if the message
    may have arrived, since it has a key."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
    from botocore.parsers import ResponseParserError

    try:
        return operation(**arguments)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        transient = not 400 <= status < 500 or status == 429 or code in _TRANSIENT_CODES
        raise Failure(str(error), transient=transient) from error
    except (HTTPClientError, IncompleteReadError, ResponseParserError) as error:
        raise Failure(str(error), transient=True) from error
    except BotoCoreError as error:
        # Before anything was sent: no credentials, no region, a wrong parameter.
        raise Failure(str(error), transient=False) from error


def _now_ms():
    return time.time_ns() // 1_000_000
