/** Idempotency keys, and the handles by which the state of a request is read. */

import { createHash, randomBytes } from "node:crypto";

/** A unique key (128 random bits), for a request that may have to be sent again. */
export function generateKey() {
  return `auto-${randomBytes(16).toString("hex")}`;
}

/**
 * The key under which a deployment prewarms a page at most once.
 *
 * The path is hashed as written: write it the same way each time. For `prewarm` only: a second
 * `changed` request under one key would be ignored.
 * @param {string} path
 * @param {number | bigint} deployment
 * @param {string} policy
 */
export function prewarmKey(path, deployment, policy) {
  const number = Buffer.alloc(8);
  number.writeBigUInt64BE(BigInt(deployment));
  const digest = createHash("sha256");
  // Length-prefixed, so that no two lists of fields give the same bytes.
  for (const field of [Buffer.from("everfresh-prewarm"), Buffer.from(sha256(path)), number, Buffer.from(policy)]) {
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(field.length));
    digest.update(length).update(field);
  }
  return `prewarm-${digest.digest("hex")}`;
}

/**
 * The handle of a request for one page, `<page hash>.<key>@<milliseconds>`.
 *
 * The path must be the canonical one, as `everfresh page show` prints it: without parameters that
 * the route ignores, and with the others sorted.
 * @param {string} path
 * @param {string} key
 * @param {number} [sentMs]
 */
export function pageHandle(path, key, sentMs) {
  const handle = `${sha256(path)}.${key}`;
  return sentMs === undefined ? handle : `${handle}@${sentMs}`;
}

/** @param {string | Uint8Array} content */
export function sha256(content) {
  return createHash("sha256").update(content).digest("hex");
}
