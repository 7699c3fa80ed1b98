/**
 * Limits of retries, for one message or one batch of up to ten. Times are in milliseconds.
 *
 * - `maxAttempts`: the first one included.
 * - `attemptTimeout`: of one attempt. After it the attempt's outcome is unknown.
 * - `totalTimeout`: of all attempts together with the backoff between them.
 * - `initialBackoff`: upper limit of the first backoff. It doubles with every attempt, and each
 *   backoff is drawn at random between zero and the limit, so that producers throttled together do
 *   not retry together.
 * - `maxBackoff`: where the doubling ends.
 * @typedef {{ maxAttempts: number, attemptTimeout: number, totalTimeout: number,
 *   initialBackoff: number, maxBackoff: number }} Retry
 */
/** @type {Readonly<Retry>} */
export const DEFAULT_RETRY: Readonly<Retry>;
/** An attempt that failed, or whose outcome is unknown. */
export class Failure extends Error {
    /**
     * @param {string} why
     * @param {{ transient: boolean, retryAfter?: number, cause?: unknown }} options
     */
    constructor(why: string, { transient, retryAfter, cause }: {
        transient: boolean;
        retryAfter?: number;
        cause?: unknown;
    });
    transient: boolean;
    retryAfter: number;
}
/** The attempts of one call. */
export class Attempts {
    /** @param {Retry} retry */
    constructor(retry: Retry);
    /** Ends the attempt that begins now. */
    signal(): AbortSignal;
    /**
     * Waits before another attempt. Returns false if attempts or time are used up.
     * @param {number} [retryAfter]
     */
    backoff(retryAfter?: number): Promise<boolean>;
    #private;
}
/**
 * Limits of retries, for one message or one batch of up to ten. Times are in milliseconds.
 *
 * - `maxAttempts`: the first one included.
 * - `attemptTimeout`: of one attempt. After it the attempt's outcome is unknown.
 * - `totalTimeout`: of all attempts together with the backoff between them.
 * - `initialBackoff`: upper limit of the first backoff. It doubles with every attempt, and each
 *   backoff is drawn at random between zero and the limit, so that producers throttled together do
 *   not retry together.
 * - `maxBackoff`: where the doubling ends.
 */
export type Retry = {
    maxAttempts: number;
    attemptTimeout: number;
    totalTimeout: number;
    initialBackoff: number;
    maxBackoff: number;
};
