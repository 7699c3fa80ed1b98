/** The queue message, version 1. */

import { prewarmKey } from "./keys.js";
import { problems, PUBLISHED_SCHEMA } from "./schema.js";

/** @typedef {"changed" | "expired" | "prewarm"} Reason */

/**
 * One request to regenerate a page (`path`), or every page that carries a `tag`. `reason` is
 * `changed` unless it is given, and `key` identifies the request: without one, the sender generates
 * one.
 * @typedef {{ tenant: string, reason?: Reason, key?: string } &
 *   ({ path: string, tag?: undefined } | { path?: undefined, tag: string })} Message
 */

/** Version of the message and of the meaning of its attributes. @type {number} */
export const VERSION = PUBLISHED_SCHEMA.properties.v.const;

/** The limit of SQS, for the body together with the attributes. */
export const MAX_MESSAGE_BYTES = 256 * 1024;

/** The message is invalid: every worker would reject it. Names the field, never its value. */
export class MessageError extends Error {}

/** The message has a version that this client does not know. */
export class UnsupportedVersion extends MessageError {
  /** @param {number} found */
  constructor(found) {
    super(`the message has version ${found}; this client knows version ${VERSION}`);
    this.found = found;
  }
}

/**
 * Writes the message as JSON. Throws `MessageError` for what the published schema refuses.
 * @param {Message} message
 */
export function toJson(message) {
  const { tenant, path, tag, reason = "changed", key, ...unknown } = message;
  const fields = { v: VERSION, tenant, path, tag, reason, idempotency_key: key, ...unknown };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  const found = problems(PUBLISHED_SCHEMA, given);
  if (found.length > 0) throw new MessageError(found.join("; "));
  return JSON.stringify(given);
}

/**
 * Parses and validates a message body, also of another producer. Of a field that occurs twice,
 * `JSON.parse` sees the last one only; a worker rejects such a message.
 * @param {string} body
 * @returns {Message}
 */
export function parseMessage(body) {
  const bytes = Buffer.byteLength(body);
  if (bytes > MAX_MESSAGE_BYTES) throw new MessageError(`message has ${bytes} bytes, allowed are ${MAX_MESSAGE_BYTES}`);
  let fields;
  try {
    fields = JSON.parse(body);
  } catch {
    throw new MessageError("message is not JSON");
  }
  // First: fields of a later version are reported as that version, not as unknown.
  if (Number.isInteger(fields?.v) && fields.v !== VERSION) throw new UnsupportedVersion(fields.v);
  const found = problems(PUBLISHED_SCHEMA, fields);
  if (found.length > 0) throw new MessageError(found.join("; "));
  const { tenant, path, tag, reason = "changed", idempotency_key: key } = fields;
  return { tenant, reason, ...(path === undefined ? { tag } : { path }), ...(key !== undefined && { key }) };
}

/**
 * The `prewarm` message with a key under which prewarming the page again costs no render.
 * @param {Message} message
 * @param {number | bigint} deployment
 * @param {string} policy
 * @returns {Message}
 */
export function withPrewarmKey(message, deployment, policy) {
  if (message.reason !== "prewarm" || message.path === undefined) {
    throw new MessageError("a prewarm key needs reason `prewarm` and a path: under it a second change would be ignored");
  }
  return { ...message, key: prewarmKey(message.path, deployment, policy) };
}
