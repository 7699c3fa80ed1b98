/**
 * Signed HTTP requests to the serving function, for systems without AWS credentials. Needs only
 * Node.js, and a key from `EVERFRESH_REVALIDATE_KEYS` (template parameter `RevalidateKeys`).
 */

import { createHmac, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { RecentCalls } from "./deduplicate.js";
import { generateKey, sha256 } from "./keys.js";
import { Attempts, DEFAULT_RETRY, Failure } from "./retry.js";

/** @import { Retry } from "./retry.js" */

/**
 * One page, or every page that carries a tag.
 * @typedef {{ path: string, tag?: undefined } | { path?: undefined, tag: string }} Target
 */

/**
 * The queue has the request. `handle` has the time of sending, by the server's clock.
 * @typedef {{ key: string, handle: string }} Accepted
 */

/**
 * State of a request, and its events after the number that was given. Give `after` to the next
 * `Trigger.status`. `ended`: the request does not change any more by itself.
 * @typedef {{ state: string, attempts: number, errorClass: string | null, after: number,
 *   ended: boolean, events: { seq: number, at_ms: number, stage: string | number }[] }} Status
 */

const ENDED = ["completed", "bypassed", "rejected", "pinned"];

const REVALIDATE = "/_everfresh/revalidate";
const REQUESTS = "/_everfresh/requests/";
const HANDLE = /^([0-9a-f]{64}|inval)\.[A-Za-z0-9._~:-]{1,128}(@[0-9]{1,19})?$/;

/**
 * The request was refused, or its outcome is unknown. `status` is that of the last answer, undefined
 * without one. Sending the request again under `key` is safe.
 */
export class TriggerError extends Error {
  /** @param {Failure} failure @param {number | undefined} status @param {string | undefined} key */
  constructor(failure, status, key) {
    super(failure.message, { cause: failure });
    this.status = status;
    this.key = key;
  }
}

/** Sends signed requests to one site. */
export class Trigger {
  #site;
  #host;
  #name;
  #secret;
  /** @type {Retry} */
  #retry;
  /** @type {RecentCalls<Accepted>} */
  #recent = new RecentCalls();

  /**
   * @param {string} site
   * @param {string} key `NAME:SECRET`
   * @param {{ retry?: Partial<Retry> }} [options]
   */
  constructor(site, key, { retry } = {}) {
    const url = new URL(site);
    if (!["https:", "http:"].includes(url.protocol) || url.pathname !== "/" || url.search) {
      throw new TypeError("the site must be https://HOST, without a path");
    }
    const separator = key.indexOf(":");
    if (separator < 1 || separator === key.length - 1) throw new TypeError("the key must be NAME:SECRET");
    this.#site = url.origin;
    this.#host = url.hostname.replace(/\.$/, "");
    this.#name = key.slice(0, separator);
    this.#secret = key.slice(separator + 1);
    this.#retry = { ...DEFAULT_RETRY, ...retry };
  }

  /**
   * Requests a page, or makes every page with a tag stale. The reason is always `changed`.
   * @param {Target & { key?: string }} request
   * @returns {Promise<Accepted>}
   */
  async revalidate({ path, tag, key = generateKey() }) {
    const body = Buffer.from(JSON.stringify(content(path, tag)));
    const answer = await this.#call("POST", REVALIDATE, body, key);
    // The handle with the time of sending, of which the answer to a status depends.
    return { key: answer.key, handle: answer.status_url.slice(REQUESTS.length) };
  }

  /**
   * Sends one request for all equal calls within 100 ms, at the end of that time.
   * @param {Target} target
   * @returns {Promise<Accepted>}
   */
  async revalidateOnce({ path, tag }) {
    const target = content(path, tag);
    const key = generateKey();
    return this.#recent.share(JSON.stringify(target), () => this.revalidate({ ...target, key }));
  }

  /**
   * The state of a request, by the handle of `Accepted` or `Sent`.
   * @param {string} handle
   * @param {number} [after]
   * @returns {Promise<Status>}
   */
  async status(handle, after = 0) {
    if (!HANDLE.test(handle)) {
      throw new TypeError("the handle must be <page hash>.<key> or inval.<key>, with or without @<milliseconds>");
    }
    const target = `${REQUESTS}${handle}${after ? `?after=${after}` : ""}`;
    const { state, attempts, error_class: errorClass, events, after: last } = await this.#call("GET", target);
    return { state, attempts, errorClass, events, after: last, ended: ENDED.includes(state) };
  }

  /**
   * Reads the state until the request has ended. After the timeout, the last state.
   * @param {string} handle
   * @param {{ timeout?: number, pause?: number }} [options] in milliseconds
   * @returns {Promise<Status>}
   */
  async wait(handle, { timeout = 60_000, pause = 500 } = {}) {
    const end = performance.now() + timeout;
    for (;;) {
      const status = await this.status(handle);
      if (status.ended || performance.now() + pause > end) return status;
      await sleep(pause);
    }
  }

  /**
   * @param {string} method
   * @param {string} target
   * @param {Buffer} [body]
   * @param {string} [key]
   * @returns {Promise<any>}
   */
  async #call(method, target, body, key) {
    const attempts = new Attempts(this.#retry);
    for (;;) {
      /** @type {number | undefined} */
      let status;
      try {
        const answer = await fetch(this.#site + target, {
          method,
          body: /** @type {any} */ (body),
          // Signed anew: a nonce counts once.
          headers: this.#headers(method, target, body ?? Buffer.alloc(0), key ?? ""),
          redirect: "manual",
          signal: attempts.signal(),
        });
        status = answer.status;
        const text = await answer.text();
        if (status === 200 || status === 202) return JSON.parse(text);
        const after = Number(answer.headers.get("retry-after") ?? 0);
        const retryAfter = Number.isFinite(after) && after > 0 ? after * 1000 : 0;
        const why = `${this.#host} answered HTTP ${status}: ${text.slice(0, 500)}`;
        throw new Failure(why, { transient: status === 429 || status >= 500, retryAfter });
      } catch (error) {
        const { message, cause } = /** @type {any} */ (error);
        const why = `${this.#host}: ${cause?.code ?? message}`;
        // Without an answer, or with part of one, the request may have arrived.
        const failure = error instanceof Failure ? error : new Failure(why, { transient: true, cause: error });
        if (!failure.transient || !(await attempts.backoff(failure.retryAfter))) throw new TriggerError(failure, status, key);
      }
    }
  }

  /** @param {string} method @param {string} target @param {Buffer} body @param {string} key */
  #headers(method, target, body, key) {
    const timestamp = String(Math.floor(Date.now() / 1000));
    const nonce = randomBytes(16).toString("hex");
    const signed = [method, this.#host, target, timestamp, nonce, key];
    return {
      "x-everfresh-key-id": this.#name,
      "x-everfresh-timestamp": timestamp,
      "x-everfresh-nonce": nonce,
      "x-everfresh-signature": signature(this.#secret, signed, body),
      ...(key && { "x-request-id": key }),
      // CloudFront signs origin requests without reading the body: the client sends its hash.
      ...(body.length > 0 && { "content-type": "application/json", "x-amz-content-sha256": sha256(body) }),
    };
  }
}

/**
 * Signs eight lines that cover the whole request, so that it can be neither changed nor replayed.
 * @param {string} secret
 * @param {string[]} signed method, host, target, timestamp, nonce and request id
 * @param {Uint8Array} body
 */
export function signature(secret, signed, body) {
  return createHmac("sha256", secret).update(["everfresh-1", ...signed, sha256(body)].join("\n")).digest("hex");
}

/**
 * @param {string} [path]
 * @param {string} [tag]
 * @returns {Target}
 */
function content(path, tag) {
  if (path !== undefined && tag === undefined) return { path };
  if (tag !== undefined && path === undefined) return { tag };
  throw new TypeError("give exactly one of path and tag");
}
