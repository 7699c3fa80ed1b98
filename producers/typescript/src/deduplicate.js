/**
 * Deduplicates calls for the same request: a click, webhook or save that fires twice.
 *
 * Equal calls in the same 100 ms window of one process are duplicates. Of `expired` and `prewarm`
 * calls the first is sent and the rest are dropped, because any fresh page covers them all. A
 * `changed` call is never dropped: it may report a change made after an earlier message was sent.
 * Such calls wait for the end of their window and share one message, which is sent after the last of
 * them.
 */

import { setTimeout as sleep } from "node:timers/promises";

/** In milliseconds. */
export const WINDOW = 100;

/** How many windows a call is remembered. */
const WINDOWS_KEPT = 2;

/**
 * Bounds memory. Calls beyond it are sent without deduplication, which costs a message but never
 * loses a request.
 */
const MAX_CALLS = 1_000;

/** @template T */
export class RecentCalls {
  #began = performance.now();
  /** @type {Map<string, { window: number, sent: Promise<T> }>} */
  #calls = new Map();
  #sweptIn = 0;

  /**
   * Waits for the end of the window, and shares one `send` with equal calls of it.
   * @param {string} request
   * @param {() => Promise<T>} send
   * @returns {Promise<T>}
   */
  share(request, send) {
    const window = this.#window();
    const name = this.#name(request, window);
    const known = this.#calls.get(name);
    if (known) return known.sent;
    const sent = this.#endOf(window).then(send);
    this.#remember(name, window, sent);
    return sent;
  }

  /**
   * Sends at once if no equal call of the window did, else returns null.
   * @param {string} request
   * @param {() => Promise<T>} send
   * @returns {Promise<T | null>}
   */
  async lead(request, send) {
    const window = this.#window();
    const name = this.#name(request, window);
    if (this.#calls.has(name)) return null;
    const sent = send();
    this.#remember(name, window, sent);
    try {
      return await sent;
    } catch (error) {
      // The next equal call is sent.
      this.#calls.delete(name);
      throw error;
    }
  }

  /** @param {string} name @param {number} window @param {Promise<T>} sent */
  #remember(name, window, sent) {
    if (this.#calls.size < MAX_CALLS) this.#calls.set(name, { window, sent });
  }

  /** @param {string} request @param {number} window */
  #name(request, window) {
    if (this.#sweptIn !== window) {
      this.#sweptIn = window;
      for (const [name, call] of this.#calls) if (call.window + WINDOWS_KEPT <= window) this.#calls.delete(name);
    }
    return `${window} ${request}`;
  }

  #window() {
    return Math.floor((performance.now() - this.#began) / WINDOW);
  }

  /** @param {number} window */
  async #endOf(window) {
    const end = this.#began + (window + 1) * WINDOW;
    // A timer may fire a millisecond early, when the window still takes calls.
    for (let left; (left = end - performance.now()) > 0; ) await sleep(Math.ceil(left));
  }
}
