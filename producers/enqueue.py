"""Asks Everfresh to regenerate a page. Needs boto3, and sqs:SendMessage on the queue.

    QUEUE_URL=... python enqueue.py TENANT PATH [KEY]

Send with the same key again if you do not know whether the first time worked: two messages with one key are one request. Without a key
the queue's message id is the key.
"""

import json
import os
import sys

import boto3

# The version of message and attributes, and who sends them.
ATTRIBUTES = {"everfresh-contract": "1", "everfresh-producer": "enqueue.py", "everfresh-producer-version": "1"}


def enqueue(sqs, queue_url, tenant, path, reason="changed", key=None, traceparent=None):
    """Sends one message of version 1 and returns the queue's id for it. The reason prewarm goes to the low-priority queue's URL."""
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
        # One tenant's flood does not hold up another's single request.
        MessageGroupId=tenant,
    )
    return sent["MessageId"]


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or "QUEUE_URL" not in os.environ:
        sys.exit(__doc__)
    key = sys.argv[3] if len(sys.argv) == 4 else None
    # In a service, take the trace context from your tracer.
    print(enqueue(boto3.client("sqs"), os.environ["QUEUE_URL"], *sys.argv[1:3], key=key, traceparent=os.environ.get("TRACEPARENT")))
