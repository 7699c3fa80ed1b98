/**
 * Writes the message as JSON. Throws `MessageError` for what the published schema refuses.
 * @param {Message} message
 */
export function toJson(message: Message): string;
/**
 * Parses and validates a message body, also of another producer. Of a field that occurs twice,
 * `JSON.parse` sees the last one only; a worker rejects such a message.
 * @param {string} body
 * @returns {Message}
 */
export function parseMessage(body: string): Message;
/**
 * The `prewarm` message with a key under which prewarming the page again costs no render.
 * @param {Message} message
 * @param {number | bigint} deployment
 * @param {string} policy
 * @returns {Message}
 */
export function withPrewarmKey(message: Message, deployment: number | bigint, policy: string): Message;
/** @typedef {"changed" | "expired" | "prewarm"} Reason */
/**
 * One request to regenerate a page (`path`), or every page that carries a `tag`. `reason` is
 * `changed` unless it is given, and `key` identifies the request: without one, the sender generates
 * one.
 * @typedef {{ tenant: string, reason?: Reason, key?: string } &
 *   ({ path: string, tag?: undefined } | { path?: undefined, tag: string })} Message
 */
/** Version of the message and of the meaning of its attributes. @type {number} */
export const VERSION: number;
/** The limit of SQS, for the body together with the attributes. */
export const MAX_MESSAGE_BYTES: number;
/** The message is invalid: every worker would reject it. Names the field, never its value. */
export class MessageError extends Error {
}
/** The message has a version that this client does not know. */
export class UnsupportedVersion extends MessageError {
    /** @param {number} found */
    constructor(found: number);
    found: number;
}
export type Reason = "changed" | "expired" | "prewarm";
/**
 * One request to regenerate a page (`path`), or every page that carries a `tag`. `reason` is
 * `changed` unless it is given, and `key` identifies the request: without one, the sender generates
 * one.
 */
export type Message = {
    tenant: string;
    reason?: Reason;
    key?: string;
} & ({
    path: string;
    tag?: undefined;
} | {
    path?: undefined;
    tag: string;
});
