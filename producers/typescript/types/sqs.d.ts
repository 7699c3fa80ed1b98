/**
 * The request was not enqueued, or the outcome is unknown. Sending `request` again, which has the
 * key of all attempts, is safe.
 */
export class SendError extends Error {
    /** @param {Outbound} outbound @param {Failure} failure */
    constructor({ queue, message }: Outbound, failure: Failure);
    queue: string;
    request: Message & {
        key: string;
    };
    key: string;
}
/** Enqueues requests. Create it once. */
export class Sender {
    /**
     * @param {SqsClient} sqs
     * @param {Queues} queues
     * @param {{ producer?: { name: string, version: string }, retry?: Partial<Retry> }} [options]
     *   `producer` is the name and version of the sending service.
     */
    constructor(sqs: SqsClient, queues: Queues, { producer, retry }?: {
        producer?: {
            name: string;
            version: string;
        };
        retry?: Partial<Retry>;
    });
    /**
     * Sends one message, under one key however often it has to be tried.
     * @param {Message} message
     * @param {{ trace?: Trace, attributes?: Record<string, string> }} [options]
     * @returns {Promise<Sent>}
     */
    send(message: Message, { trace, attributes }?: {
        trace?: Trace;
        attributes?: Record<string, string>;
    }): Promise<Sent>;
    /**
     * Sends one message for all equal calls within 100 ms: see `deduplicate.js`. Resolves to null for
     * an `expired` or `prewarm` call that an equal one made unnecessary.
     * @param {Message} message
     * @param {{ trace?: Trace }} [options]
     * @returns {Promise<Sent | null>}
     */
    sendOnce(message: Message, { trace }?: {
        trace?: Trace;
    }): Promise<Sent | null>;
    /**
     * Sends many messages, up to ten per call. Resolves to one result per message, in order: a
     * refused message does not affect the others.
     * @param {Iterable<Message>} messages
     * @param {{ trace?: Trace }} [options]
     * @returns {Promise<(Sent | SendError | MessageError)[]>}
     */
    sendAll(messages: Iterable<Message>, { trace }?: {
        trace?: Trace;
    }): Promise<(Sent | SendError | MessageError)[]>;
    #private;
}
/**
 * URLs of a deployment's queues: `main` for `changed` and `expired` requests, `lowPriority` for
 * `prewarm` requests, which must not delay the others.
 */
export type Queues = {
    main: string;
    lowPriority?: string;
};
/**
 * An `SQSClient` of
 */
export type SqsClient = {
    send(command: any, options?: any): Promise<any>;
};
import type { Message } from "./message.js";
import type { Outbound } from "./outbound.js";
import { Failure } from "./retry.js";
import type { Trace } from "./trace.js";
import type { Sent } from "./outbound.js";
import { MessageError } from "./message.js";
import type { Retry } from "./retry.js";
