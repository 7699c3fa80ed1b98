/** Retries with exponential backoff and full jitter. */

import { setTimeout as sleep } from "node:timers/promises";

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
export const DEFAULT_RETRY = Object.freeze({
  maxAttempts: 4,
  attemptTimeout: 3_000,
  totalTimeout: 10_000,
  initialBackoff: 100,
  maxBackoff: 2_000,
});

/** An attempt that failed, or whose outcome is unknown. */
export class Failure extends Error {
  /**
   * @param {string} why
   * @param {{ transient: boolean, retryAfter?: number, cause?: unknown }} options
   */
  constructor(why, { transient, retryAfter = 0, cause }) {
    super(why, { cause });
    this.transient = transient;
    this.retryAfter = retryAfter;
  }
}

/** The attempts of one call. */
export class Attempts {
  /** @type {Retry} */
  #retry;
  #made = 0;
  #end;

  /** @param {Retry} retry */
  constructor(retry) {
    this.#retry = retry;
    this.#end = performance.now() + retry.totalTimeout;
  }

  /** Ends the attempt that begins now. */
  signal() {
    this.#made += 1;
    return AbortSignal.timeout(Math.max(1, Math.floor(Math.min(this.#retry.attemptTimeout, this.#end - performance.now()))));
  }

  /**
   * Waits before another attempt. Returns false if attempts or time are used up.
   * @param {number} [retryAfter]
   */
  async backoff(retryAfter = 0) {
    if (this.#made >= this.#retry.maxAttempts) return false;
    const limit = Math.min(this.#retry.initialBackoff * 2 ** (this.#made - 1), this.#retry.maxBackoff);
    const pause = retryAfter + limit * Math.random();
    if (performance.now() + pause >= this.#end) return false;
    await sleep(pause);
    return true;
  }
}
