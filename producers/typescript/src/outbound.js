/** A message prepared for its queue, and the batches of such messages. */

import { pageHandle } from "./keys.js";
import { MAX_MESSAGE_BYTES } from "./message.js";
import { Failure } from "./retry.js";

/** @import { Message } from "./message.js" */

/**
 * A message prepared for its queue. Prepared once, so that every attempt sends the same bytes.
 * @typedef {{ queue: string, bytes: number, message: Message & { key: string },
 *   request: Record<string, unknown> }} Outbound
 */

/**
 * A request that is in the queue. `handle` names it for `Trigger.status` and `everfresh request
 * show`: correct if the path was written in its canonical form, and if this machine's clock is
 * right to within a second.
 * @typedef {{ messageId: string, key: string, handle: string }} Sent
 */

/** SQS limit per call. */
const MAX_ENTRIES = 10;

/**
 * The result of a send; throws `Failure` without a message id.
 * @param {Outbound} outbound
 * @param {string | undefined} messageId
 * @param {number} sentMs
 * @returns {Sent}
 */
export function sent({ message: { key, path } }, messageId, sentMs) {
  if (!messageId) throw new Failure("SQS returned no message id", { transient: true });
  return { messageId, key, handle: path === undefined ? `inval.${key}` : pageHandle(path, key, sentMs) };
}

/** @param {string} text */
export function attribute(text) {
  return { DataType: "String", StringValue: text };
}

/**
 * Splits messages into batches within the SQS limits, one queue each, in order.
 * @param {[number, Outbound][]} outbound
 */
export function batches(outbound) {
  /** @type {[number, Outbound][][]} */
  const full = [];
  /** @type {Map<string, { bytes: number, batch: [number, Outbound][] }>} */
  const open = new Map();
  for (const [index, message] of outbound) {
    let current = open.get(message.queue) ?? { bytes: 0, batch: [] };
    if (current.batch.length === MAX_ENTRIES || current.bytes + message.bytes > MAX_MESSAGE_BYTES) {
      full.push(current.batch);
      current = { bytes: 0, batch: [] };
    }
    current.bytes += message.bytes;
    current.batch.push([index, message]);
    open.set(message.queue, current);
  }
  return [...full, ...[...open.values()].map(({ batch }) => batch)];
}
