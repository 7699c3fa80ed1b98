/**
 * Enqueues requests to regenerate pages with Everfresh.
 *
 *     import { Sender } from "everfresh-client";
 *     import { SQSClient } from "@aws-sdk/client-sqs";
 *
 *     const queues = { main: QUEUE_URL, lowPriority: LOW_PRIORITY_URL };
 *     const producer = { name: "shop", version: "1.4.2" };
 *     const sender = new Sender(new SQSClient({ maxAttempts: 1 }), queues, { producer });
 *     // A webhook that fires twice is one message.
 *     await sender.sendOnce({ tenant: "acme", path: "/products/42" });
 *
 * Without AWS credentials, by signed HTTP request:
 *
 *     import { Trigger } from "everfresh-client";
 *
 *     const trigger = new Trigger("https://www.acme.example", process.env.EVERFRESH_KEY);
 *     const { handle } = await trigger.revalidate({ path: "/products/42" });
 *     console.log((await trigger.wait(handle)).state);
 *
 * `message` has the message, `sqs` the sender, `trigger` the signed requests, `deduplicate` what is
 * one call, `retry` the attempts, `schema` and `check` the check against the published schema.
 */

export { generateKey, pageHandle, prewarmKey } from "./keys.js";
export { MessageError, parseMessage, toJson, UnsupportedVersion, VERSION, withPrewarmKey } from "./message.js";
export { DEFAULT_RETRY } from "./retry.js";
export { checkSchema, PUBLISHED_SCHEMA } from "./schema.js";
export { Sender, SendError } from "./sqs.js";
export { validTrace } from "./trace.js";
export { Trigger, TriggerError } from "./trigger.js";

/** @typedef {import("./message.js").Message} Message */
/** @typedef {import("./message.js").Reason} Reason */
/** @typedef {import("./retry.js").Retry} Retry */
/** @typedef {import("./sqs.js").Queues} Queues */
/** @typedef {import("./outbound.js").Sent} Sent */
/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trigger.js").Accepted} Accepted */
/** @typedef {import("./trigger.js").Status} Status */
/** @typedef {import("./trigger.js").Target} Target */
