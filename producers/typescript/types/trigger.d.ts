/**
 * Signs eight lines that cover the whole request, so that it can be neither changed nor replayed.
 * @param {string} secret
 * @param {string[]} signed method, host, target, timestamp, nonce and request id
 * @param {Uint8Array} body
 */
export function signature(secret: string, signed: string[], body: Uint8Array): string;
/**
 * The request was refused, or its outcome is unknown. `status` is that of the last answer, undefined
 * without one. Sending the request again under `key` is safe.
 */
export class TriggerError extends Error {
    /** @param {Failure} failure @param {number | undefined} status @param {string | undefined} key */
    constructor(failure: Failure, status: number | undefined, key: string | undefined);
    status: number | undefined;
    key: string | undefined;
}
/** Sends signed requests to one site. */
export class Trigger {
    /**
     * @param {string} site
     * @param {string} key `NAME:SECRET`
     * @param {{ retry?: Partial<Retry> }} [options]
     */
    constructor(site: string, key: string, { retry }?: {
        retry?: Partial<Retry>;
    });
    /**
     * Requests a page, or makes every page with a tag stale. The reason is always `changed`.
     * @param {Target & { key?: string }} request
     * @returns {Promise<Accepted>}
     */
    revalidate({ path, tag, key }: Target & {
        key?: string;
    }): Promise<Accepted>;
    /**
     * Sends one request for all equal calls within 100 ms, at the end of that time.
     * @param {Target} target
     * @returns {Promise<Accepted>}
     */
    revalidateOnce({ path, tag }: Target): Promise<Accepted>;
    /**
     * The state of a request, by the handle of `Accepted` or `Sent`.
     * @param {string} handle
     * @param {number} [after]
     * @returns {Promise<Status>}
     */
    status(handle: string, after?: number): Promise<Status>;
    /**
     * Reads the state until the request has ended. After the timeout, the last state.
     * @param {string} handle
     * @param {{ timeout?: number, pause?: number }} [options] in milliseconds
     * @returns {Promise<Status>}
     */
    wait(handle: string, { timeout, pause }?: {
        timeout?: number;
        pause?: number;
    }): Promise<Status>;
    #private;
}
/**
 * One page, or every page that carries a tag.
 */
export type Target = {
    path: string;
    tag?: undefined;
} | {
    path?: undefined;
    tag: string;
};
/**
 * The queue has the request. `handle` has the time of sending, by the server's clock.
 */
export type Accepted = {
    key: string;
    handle: string;
};
/**
 * State of a request, and its events after the number that was given. Give `after` to the next
 * `Trigger.status`. `ended`: the request does not change any more by itself.
 */
export type Status = {
    state: string;
    attempts: number;
    errorClass: string | null;
    after: number;
    ended: boolean;
    events: {
        seq: number;
        at_ms: number;
        stage: string | number;
    }[];
};
import { Failure } from "./retry.js";
import type { Retry } from "./retry.js";
