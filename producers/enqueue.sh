#!/bin/sh
# Asks Everfresh to regenerate a page. Needs the AWS CLI, and sqs:SendMessage on the queue.
#
#     QUEUE_URL=... sh enqueue.sh TENANT PATH [KEY]
#
# Send with the same key again if you do not know whether the first time worked: two messages with one key are one request. Without a
# key the queue's message id is the key. TENANT, PATH and KEY must not need escapes in JSON; a path in a URL does not.
set -eu
[ $# -ge 2 ] && [ -n "${QUEUE_URL:-}" ] || { sed -n '2,4p' "$0" >&2; exit 1; }

# The version of message and attributes, and who sends them.
attributes='"everfresh-contract":{"DataType":"String","StringValue":"1"}'
attributes="$attributes,\"everfresh-producer\":{\"DataType\":\"String\",\"StringValue\":\"enqueue.sh\"}"
attributes="$attributes,\"everfresh-producer-version\":{\"DataType\":\"String\",\"StringValue\":\"1\"}"
[ -z "${TRACEPARENT:-}" ] || attributes="$attributes,\"traceparent\":{\"DataType\":\"String\",\"StringValue\":\"$TRACEPARENT\"}"

# The reason: prewarm would go to the low-priority queue's URL.
# The endpoint: not every version of the AWS CLI reads the variable. The group: one tenant's flood does not hold up another's single request.
aws ${AWS_ENDPOINT_URL:+--endpoint-url "$AWS_ENDPOINT_URL"} sqs send-message --queue-url "$QUEUE_URL" --message-group-id "$1" \
    --message-body "{\"v\":1,\"tenant\":\"$1\",\"path\":\"$2\",\"reason\":\"changed\"${3:+,\"idempotency_key\":\"$3\"}}" \
    --message-attributes "{$attributes}" \
    --query MessageId --output text
