/**
 * The result of a send; throws `Failure` without a message id.
 * @param {Outbound} outbound
 * @param {string | undefined} messageId
 * @param {number} sentMs
 * @returns {Sent}
 */
export function sent({ message: { key, path } }: Outbound, messageId: string | undefined, sentMs: number): Sent;
/** @param {string} text */
export function attribute(text: string): {
    DataType: string;
    StringValue: string;
};
/**
 * Splits messages into batches within the SQS limits, one queue each, in order.
 * @param {[number, Outbound][]} outbound
 */
export function batches(outbound: [number, Outbound][]): [number, Outbound][][];
/**
 * A message prepared for its queue. Prepared once, so that every attempt sends the same bytes.
 */
export type Outbound = {
    queue: string;
    bytes: number;
    message: Message & {
        key: string;
    };
    request: Record<string, unknown>;
};
/**
 * A request that is in the queue. `handle` names it for `Trigger.status` and `everfresh request
 * show`: correct if the path was written in its canonical form, and if this machine's clock is
 * right to within a second.
 */
export type Sent = {
    messageId: string;
    key: string;
    handle: string;
};
import type { Message } from "./message.js";
