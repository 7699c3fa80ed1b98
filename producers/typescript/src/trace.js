/** Trace context of the producer, which links a regeneration to the operation that caused it. */

/**
 * W3C and X-Ray trace context. `xray` is the HTTP header `X-Amzn-Trace-Id`, or a Lambda function's
 * `_X_AMZN_TRACE_ID`.
 * @typedef {{ traceparent?: string, tracestate?: string, xray?: string }} Trace
 */

const PARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]*)?$/;
const MEMBER = /^ *[!-<>-~][!-<>-~ ]*=[ -+\--~]+$/;
const XRAY_FIELD = /^ *((Root|Self)=1-[0-9a-f]{8}-[0-9a-f]{24}|Parent=[0-9a-f]{16}|Sampled=[01?]|Lineage=[ -~]+) *$/;

/**
 * The well-formed part of a trace. The rest is dropped, as the W3C specification requires: a request
 * does not need a trace.
 * @param {Trace} trace
 * @returns {Trace}
 */
export function validTrace({ traceparent, tracestate, xray }) {
  const linked = traceparent !== undefined && isTraceparent(traceparent);
  return {
    ...(linked && { traceparent }),
    // Meaningless without traceparent.
    ...(linked && tracestate !== undefined && isTracestate(tracestate) && { tracestate }),
    ...(xray !== undefined && isXray(xray) && { xray }),
  };
}

/** @param {string} text */
function isTraceparent(text) {
  // Version 00 has exactly four parts; a later one may add parts.
  return PARENT.test(text) && text.length <= 128 && (text.length === 55 || !text.startsWith("00"));
}

/** @param {string} text */
function isTracestate(text) {
  const members = text.split(",").filter((member) => member.trim() !== "");
  const fits = members.length >= 1 && members.length <= 32 && text.length <= 512;
  return fits && members.every((member) => MEMBER.test(member));
}

/** @param {string} text */
function isXray(text) {
  const fields = text.split(";");
  const rooted = fields.some((field) => field.trim().startsWith("Root="));
  return rooted && text.length <= 256 && fields.every((field) => XRAY_FIELD.test(field));
}
