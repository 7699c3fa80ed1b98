/** In milliseconds. */
export const WINDOW: 100;
/** @template T */
export class RecentCalls<T> {
    /**
     * Waits for the end of the window, and shares one `send` with equal calls of it.
     * @param {string} request
     * @param {() => Promise<T>} send
     * @returns {Promise<T>}
     */
    share(request: string, send: () => Promise<T>): Promise<T>;
    /**
     * Sends at once if no equal call of the window did, else returns null.
     * @param {string} request
     * @param {() => Promise<T>} send
     * @returns {Promise<T | null>}
     */
    lead(request: string, send: () => Promise<T>): Promise<T | null>;
    #private;
}
