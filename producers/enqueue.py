"""Enqueues a request to regenerate a page. Needs boto3 and sqs:SendMessage on the queue.

    QUEUE_URL=... python enqueue.py TENANT PATH [KEY]

If the outcome of a send is unknown, send again with the same key: two messages with one key are
one request. Without a key, the SQS message id is the key.
"""

import json
import os
import sys

import boto3

# Contract version, and name and version of the producer.
ATTRIBUTES = {"everfresh-contract": "1", "everfresh-producer": "enqueue.py", "everfresh-producer-version": "1"}


def enqueue(sqs, queue_url, tenant, path, reason="changed", key=None, traceparent=None):
    """Sends one message (version 1) and returns its SQS message id.

    Send reason prewarm to the URL of the low-priority queue.
    """
    message = {"v": 1, "tenant": tenant, "path": path, "reason": reason}
    if key:
        message["idempotency_key"] = key
    attributes = dict(ATTRIBUTES)
    if traceparent:
        attributes["traceparent"] = traceparent
    sent = sqs.send_message(
        QueueUrl=queue_url,
        MessageBody=json.dumps(message),
        MessageAttributes={name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()},
        # SQS fair queues: one tenant's backlog does not delay another tenant's message.
        MessageGroupId=tenant,
    )
    return sent["MessageId"]


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or "QUEUE_URL" not in os.environ:
        sys.exit(__doc__)
    key = sys.argv[3] if len(sys.argv) == 4 else None
    # In a service, take the trace context from your tracer.
    print(enqueue(boto3.client("sqs"), os.environ["QUEUE_URL"], *sys.argv[1:3], key=key, traceparent=os.environ.get("TRACEPARENT")))
