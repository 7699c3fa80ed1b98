/** A unique key (128 random bits), for a request that may have to be sent again. */
export function generateKey(): string;
/**
 * The key under which a deployment prewarms a page at most once.
 *
 * The path is hashed as written: write it the same way each time. For `prewarm` only: a second
 * `changed` request under one key would be ignored.
 * @param {string} path
 * @param {number | bigint} deployment
 * @param {string} policy
 */
export function prewarmKey(path: string, deployment: number | bigint, policy: string): string;
/**
 * The handle of a request for one page, `<page hash>.<key>@<milliseconds>`.
 *
 * The path must be the canonical one, as `everfresh page show` prints it: without parameters that
 * the route ignores, and with the others sorted.
 * @param {string} path
 * @param {string} key
 * @param {number} [sentMs]
 */
export function pageHandle(path: string, key: string, sentMs?: number): string;
/** @param {string | Uint8Array} content */
export function sha256(content: string | Uint8Array): string;
