// Enqueues a request to regenerate a page. Needs @aws-sdk/client-sqs and sqs:SendMessage on the
// queue.
//
//     QUEUE_URL=... node enqueue.js TENANT PATH [KEY]
//
// If the outcome of a send is unknown, send again with the same key: two messages with one key are
// one request. Without a key, the SQS message id is the key.

import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

type Reason = "changed" | "expired" | "prewarm";
type RegenerationRequest = { tenant: string; path: string; reason?: Reason; key?: string; traceparent?: string };

// Contract version, and name and version of the producer.
const ATTRIBUTES = { "everfresh-contract": "1", "everfresh-producer": "enqueue.ts", "everfresh-producer-version": "1" };

/**
 * Sends one message (version 1) and returns its SQS message id.
 * Send reason prewarm to the URL of the low-priority queue.
 */
export async function enqueue(
  sqs: SQSClient,
  queueUrl: string,
  request: RegenerationRequest,
): Promise<string | undefined> {
  const { tenant, path, reason = "changed", key, traceparent } = request;
  const message = { v: 1, tenant, path, reason, ...(key && { idempotency_key: key }) };
  const attributes: Record<string, string> = { ...ATTRIBUTES, ...(traceparent && { traceparent }) };
  const sent = await sqs.send(
    new SendMessageCommand({
      QueueUrl: queueUrl,
      MessageBody: JSON.stringify(message),
      MessageAttributes: Object.fromEntries(
        Object.entries(attributes).map(([name, value]) => [name, { DataType: "String", StringValue: value }]),
      ),
      // SQS fair queues: one tenant's backlog does not delay another tenant's message.
      MessageGroupId: tenant,
    }),
  );
  return sent.MessageId;
}

// Command line only; skipped when this file is imported.
const isMain = process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url);
if (isMain) {
  const [tenant, path, key] = process.argv.slice(2);
  const queueUrl = process.env.QUEUE_URL;
  if (!tenant || !path || !queueUrl) {
    console.error("QUEUE_URL=... node enqueue.js TENANT PATH [KEY]");
    process.exit(1);
  }
  // In a service, take the trace context from your tracer.
  const request = { tenant, path, key, traceparent: process.env.TRACEPARENT };
  console.log(await enqueue(new SQSClient({}), queueUrl, request));
}
