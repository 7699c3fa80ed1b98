/**
 * The well-formed part of a trace. The rest is dropped, as the W3C specification requires: a request
 * does not need a trace.
 * @param {Trace} trace
 * @returns {Trace}
 */
export function validTrace({ traceparent, tracestate, xray }: Trace): Trace;
/**
 * W3C and X-Ray trace context. `xray` is the HTTP header `X-Amzn-Trace-Id`, or a Lambda function's
 * `_X_AMZN_TRACE_ID`.
 */
export type Trace = {
    traceparent?: string;
    tracestate?: string;
    xray?: string;
};
