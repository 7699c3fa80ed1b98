#!/bin/sh
# Enqueues a request to regenerate a page. Needs the AWS CLI and sqs:SendMessage on the queue.
#
#     QUEUE_URL=... sh enqueue.sh TENANT PATH [KEY]
#
# If the outcome of a send is unknown, send again with the same key: two messages with one key are
# one request. Without a key, the SQS message id is the key. TENANT, PATH and KEY must not need
# escaping in JSON; the path of a URL does not.
set -eu
[ $# -ge 2 ] && [ -n "${QUEUE_URL:-}" ] || { sed -n '2,4p' "$0" >&2; exit 1; }

# Contract version, and name and version of the producer.
attributes='"everfresh-contract":{"DataType":"String","StringValue":"1"}'
attributes="$attributes,\"everfresh-producer\":{\"DataType\":\"String\",\"StringValue\":\"enqueue.sh\"}"
attributes="$attributes,\"everfresh-producer-version\":{\"DataType\":\"String\",\"StringValue\":\"1\"}"
[ -z "${TRACEPARENT:-}" ] || attributes="$attributes,\"traceparent\":{\"DataType\":\"String\",\"StringValue\":\"$TRACEPARENT\"}"

# Send reason prewarm to the URL of the low-priority queue. The endpoint is passed because older
# versions of the AWS CLI ignore the variable. The group makes it a fair queue: one tenant's backlog
# does not delay another tenant's message.
aws ${AWS_ENDPOINT_URL:+--endpoint-url "$AWS_ENDPOINT_URL"} sqs send-message --queue-url "$QUEUE_URL" --message-group-id "$1" \
    --message-body "{\"v\":1,\"tenant\":\"$1\",\"path\":\"$2\",\"reason\":\"changed\"${3:+,\"idempotency_key\":\"$3\"}}" \
    --message-attributes "{$attributes}" \
    --query MessageId --output text
