// Asks Everfresh to regenerate a page. Needs @aws-sdk/client-sqs, and sqs:SendMessage on the queue.
//
//     QUEUE_URL=... node enqueue.js TENANT PATH [KEY]
//
// Send with the same key again if you do not know whether the first time worked: two messages with one key are one request. Without a
// key the queue's message id is the key.

import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

type Reason = "changed" | "expired" | "prewarm";
type Wish = { tenant: string; path: string; reason?: Reason; key?: string; traceparent?: string };

// The version of message and attributes, and who sends them.
const ATTRIBUTES = { "everfresh-contract": "1", "everfresh-producer": "enqueue.ts", "everfresh-producer-version": "1" };

/** Sends one message of version 1 and returns the queue's id for it. The reason prewarm goes to the low-priority queue's URL. */
export async function enqueue(sqs: SQSClient, queueUrl: string, wish: Wish): Promise<string | undefined> {
  const { tenant, path, reason = "changed", key, traceparent } = wish;
  const message = { v: 1, tenant, path, reason, ...(key && { idempotency_key: key }) };
  const attributes: Record<string, string> = { ...ATTRIBUTES, ...(traceparent && { traceparent }) };
  const sent = await sqs.send(
    new SendMessageCommand({
      QueueUrl: queueUrl,
      MessageBody: JSON.stringify(message),
      MessageAttributes: Object.fromEntries(
        Object.entries(attributes).map(([name, value]) => [name, { DataType: "String", StringValue: value }]),
      ),
      // One tenant's flood does not hold up another's single request.
      MessageGroupId: tenant,
    }),
  );
  return sent.MessageId;
}

// The rest is for the command line, and not for who imports this file.
const isMain = process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url);
if (isMain) {
  const [tenant, path, key] = process.argv.slice(2);
  const queueUrl = process.env.QUEUE_URL;
  if (!tenant || !path || !queueUrl) {
    console.error("QUEUE_URL=... node enqueue.js TENANT PATH [KEY]");
    process.exit(1);
  }
  // In a service, take the trace context from your tracer.
  const wish = { tenant, path, key, traceparent: process.env.TRACEPARENT };
  console.log(await enqueue(new SQSClient({}), queueUrl, wish));
}
