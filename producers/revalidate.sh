#!/bin/sh
# Sends a signed HTTP request to regenerate a page or to make every page with a tag stale, or reads
# the status of such a request. Needs curl, openssl and a key from EVERFRESH_REVALIDATE_KEYS of the
# serving function (template parameter RevalidateKeys).
#
#     EVERFRESH_KEY=name:secret sh revalidate.sh https://example.com path /products/42 [REQUEST_ID]
#     EVERFRESH_KEY=name:secret sh revalidate.sh https://example.com tag products [REQUEST_ID]
#     EVERFRESH_KEY=name:secret sh revalidate.sh https://example.com status HANDLE [AFTER]
#
# If the outcome is unknown, send again with the same request id: two requests with one id are one.
# Prints the response as JSON. The path or tag must not need escaping in JSON. While openssl runs,
# other users of this machine can see the secret in the process list.
set -eu
[ $# -ge 3 ] && [ -n "${EVERFRESH_KEY:-}" ] || { sed -n '2,9p' "$0" >&2; exit 1; }

site=${1%/} method=POST target=/_everfresh/revalidate body= request_id=
case $2 in
    path | tag) body="{\"$2\":\"$3\"}" request_id=${4:-} ;;
    status) method=GET target="/_everfresh/requests/$3${4:+?after=$4}" ;;
    *) sed -n '2,9p' "$0" >&2; exit 1 ;;
esac
host=$(printf %s "$site" | sed 's|^[a-z]*://||; s|[:/].*$||' | tr A-Z a-z)
timestamp=$(date +%s)
nonce=$(openssl rand -hex 16)
hash=$(printf %s "$body" | openssl dgst -sha256 -r | cut -d' ' -f1)

# The eight signed lines cover the whole request, so that it can be neither changed nor replayed.
signature=$(printf 'everfresh-1\n%s\n%s\n%s\n%s\n%s\n%s\n%s' \
    "$method" "$host" "$target" "$timestamp" "$nonce" "$request_id" "$hash" |
    openssl dgst -sha256 -r -hmac "${EVERFRESH_KEY#*:}" | cut -d' ' -f1)

set -- --silent --show-error --fail-with-body --max-time 30 --request "$method" \
    --header "x-everfresh-key-id: ${EVERFRESH_KEY%%:*}" --header "x-everfresh-timestamp: $timestamp" \
    --header "x-everfresh-nonce: $nonce" --header "x-everfresh-signature: $signature"
[ -z "$request_id" ] || set -- "$@" --header "x-request-id: $request_id"
# CloudFront signs origin requests without reading the body: the client must send its hash.
[ -z "$body" ] || set -- "$@" --header "x-amz-content-sha256: $hash" --header 'content-type: application/json' --data-raw "$body"
curl "$@" "$site$target"
echo
