/**
 * Sends messages to the SQS queues of a deployment. Needs @aws-sdk/client-sqs and sqs:SendMessage on
 * the queue.
 */

import { RecentCalls } from "./deduplicate.js";
import { generateKey } from "./keys.js";
import { MAX_MESSAGE_BYTES, MessageError, toJson, VERSION } from "./message.js";
import { attribute, batches, sent } from "./outbound.js";
import { Attempts, DEFAULT_RETRY, Failure } from "./retry.js";
import { validTrace } from "./trace.js";

/** @import { Message } from "./message.js" */
/** @import { Outbound, Sent } from "./outbound.js" */
/** @import { Retry } from "./retry.js" */
/** @import { Trace } from "./trace.js" */

/**
 * URLs of a deployment's queues: `main` for `changed` and `expired` requests, `lowPriority` for
 * `prewarm` requests, which must not delay the others.
 * @typedef {{ main: string, lowPriority?: string }} Queues
 */

/**
 * An `SQSClient` of @aws-sdk/client-sqs, best with `maxAttempts: 1`: its own retries would multiply
 * those of the sender.
 * @typedef {{ send(command: any, options?: any): Promise<any> }} SqsClient
 */

/** Transient errors that SQS returns with a 4xx status. */
const TRANSIENT_CODES = [
  "KMS.ThrottlingException",
  "KmsThrottled",
  "RequestThrottled",
  "RequestThrottledException",
  "RequestTimeout",
  "RequestTimeoutException",
  "Throttling",
  "ThrottlingException",
  "TooManyRequestsException",
];

/** Errors of the SDK before anything is sent. */
const UNSENT = ["CredentialsProviderError", "TokenProviderError"];

/**
 * The request was not enqueued, or the outcome is unknown. Sending `request` again, which has the
 * key of all attempts, is safe.
 */
export class SendError extends Error {
  /** @param {Outbound} outbound @param {Failure} failure */
  constructor({ queue, message }, failure) {
    super(`sending to ${queue}: ${failure.message}`, { cause: failure });
    this.queue = queue;
    this.request = message;
    this.key = message.key;
  }
}

/** Enqueues requests. Create it once. */
export class Sender {
  #sqs;
  #queues;
  #producer;
  /** @type {Retry} */
  #retry;
  /** @type {RecentCalls<Sent>} */
  #recent = new RecentCalls();

  /**
   * @param {SqsClient} sqs
   * @param {Queues} queues
   * @param {{ producer?: { name: string, version: string }, retry?: Partial<Retry> }} [options]
   *   `producer` is the name and version of the sending service.
   */
  constructor(sqs, queues, { producer, retry } = {}) {
    this.#sqs = sqs;
    this.#queues = queues;
    this.#producer = producer;
    this.#retry = { ...DEFAULT_RETRY, ...retry };
  }

  /**
   * Sends one message, under one key however often it has to be tried.
   * @param {Message} message
   * @param {{ trace?: Trace, attributes?: Record<string, string> }} [options]
   * @returns {Promise<Sent>}
   */
  async send(message, { trace, attributes } = {}) {
    return this.#deliver(this.#outbound(message, trace, attributes));
  }

  /**
   * Sends one message for all equal calls within 100 ms: see `deduplicate.js`. Resolves to null for
   * an `expired` or `prewarm` call that an equal one made unnecessary.
   * @param {Message} message
   * @param {{ trace?: Trace }} [options]
   * @returns {Promise<Sent | null>}
   */
  async sendOnce(message, { trace } = {}) {
    const outbound = this.#outbound(message, trace);
    const { tenant, path, tag, reason = "changed", key } = message;
    const request = JSON.stringify([tenant, path, tag, reason, key]);
    const send = () => this.#deliver(outbound);
    return reason === "changed" ? this.#recent.share(request, send) : this.#recent.lead(request, send);
  }

  /**
   * Sends many messages, up to ten per call. Resolves to one result per message, in order: a
   * refused message does not affect the others.
   * @param {Iterable<Message>} messages
   * @param {{ trace?: Trace }} [options]
   * @returns {Promise<(Sent | SendError | MessageError)[]>}
   */
  async sendAll(messages, { trace } = {}) {
    /** @type {(Sent | SendError | MessageError)[]} */
    const results = [];
    /** @type {[number, Outbound][]} */
    const outbound = [];
    let index = 0;
    for (const message of messages) {
      try {
        outbound.push([index, this.#outbound(message, trace)]);
      } catch (error) {
        if (!(error instanceof MessageError)) throw error;
        results[index] = error;
      }
      index += 1;
    }
    for (const batch of batches(outbound)) await this.#deliverBatch(batch, results);
    return results;
  }

  /**
   * @param {Message} given
   * @param {Trace} [trace]
   * @param {Record<string, string>} [attributes]
   * @returns {Outbound}
   */
  #outbound(given, trace = {}, attributes = {}) {
    const message = { ...given, key: given.key ?? generateKey() };
    const body = toJson(message);
    const queue = message.reason === "prewarm" ? this.#queues.lowPriority : this.#queues.main;
    if (queue === undefined) throw new MessageError("reason `prewarm` needs the URL of the low-priority queue");
    const { xray, ...w3c } = validTrace(trace);
    const { name, version } = this.#producer ?? {};
    const texts = {
      "everfresh-contract": String(VERSION),
      ...(name && { "everfresh-producer": name }),
      ...(version && { "everfresh-producer-version": version }),
      ...w3c,
      ...attributes,
    };
    let bytes = Buffer.byteLength(body);
    for (const [name, value] of Object.entries(texts)) {
      bytes += Buffer.byteLength(name) + "String".length + Buffer.byteLength(value);
    }
    if (bytes > MAX_MESSAGE_BYTES) throw new MessageError(`message has ${bytes} bytes, allowed are ${MAX_MESSAGE_BYTES}`);
    const request = {
      MessageBody: body,
      MessageAttributes: Object.fromEntries(Object.entries(texts).map(([name, value]) => [name, attribute(value)])),
      // SQS fair queues: one tenant's backlog does not delay another tenant's message.
      MessageGroupId: message.tenant,
      ...(xray && { MessageSystemAttributes: { AWSTraceHeader: attribute(xray) } }),
    };
    return { queue, bytes, message, request };
  }

  /** @param {Outbound} outbound @returns {Promise<Sent>} */
  async #deliver(outbound) {
    const attempts = new Attempts(this.#retry);
    const sentMs = Date.now();
    for (;;) {
      try {
        const answer = await this.#call("SendMessageCommand", { QueueUrl: outbound.queue, ...outbound.request }, attempts);
        return sent(outbound, answer.MessageId, sentMs);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (!error.transient || !(await attempts.backoff())) throw new SendError(outbound, error);
      }
    }
  }

  /**
   * Sends one batch until each of its messages is sent or has finally failed.
   * @param {[number, Outbound][]} batch
   * @param {(Sent | SendError | MessageError)[]} results
   */
  async #deliverBatch(batch, results) {
    const attempts = new Attempts(this.#retry);
    const sentMs = Date.now();
    for (let pending = batch; ; ) {
      /** @type {[number, Outbound][]} */
      const failed = [];
      const answers = await this.#attemptBatch(pending, attempts);
      pending.forEach(([index, outbound], at) => {
        try {
          const answer = answers[at];
          if (answer instanceof Failure) throw answer;
          results[index] = sent(outbound, answer, sentMs);
        } catch (error) {
          if (!(error instanceof Failure)) throw error;
          results[index] = new SendError(outbound, error);
          if (error.transient) failed.push([index, outbound]);
        }
      });
      if (failed.length === 0 || !(await attempts.backoff())) return;
      pending = failed;
    }
  }

  /**
   * One call. Resolves to a message id or failure per message, in order.
   * @param {[number, Outbound][]} pending
   * @param {Attempts} attempts
   * @returns {Promise<(string | undefined | Failure)[]>}
   */
  async #attemptBatch(pending, attempts) {
    const entries = pending.map(([, { request }], id) => ({ Id: String(id), ...request }));
    try {
      const answer = await this.#call("SendMessageBatchCommand", { QueueUrl: pending[0][1].queue, Entries: entries }, attempts);
      const found = new Map();
      for (const { Id, MessageId } of answer.Successful ?? []) found.set(Id, MessageId);
      for (const { Id, Code, Message, SenderFault } of answer.Failed ?? []) {
        const transient = !SenderFault || TRANSIENT_CODES.includes(Code);
        found.set(Id, new Failure(`${Code}: ${Message ?? ""}`, { transient }));
      }
      return entries.map(({ Id }) => found.get(Id));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return pending.map(() => error);
    }
  }

  /**
   * Calls SQS. Throws `Failure`, transient if another attempt may succeed: also if the message may
   * have arrived, since it has a key.
   * @param {"SendMessageCommand" | "SendMessageBatchCommand"} command
   * @param {any} input
   * @param {Attempts} attempts
   */
  async #call(command, input, attempts) {
    // Loaded here, so that signed requests do not need it.
    /** @type {Record<string, any>} */
    const commands = await import("@aws-sdk/client-sqs");
    try {
      return await this.#sqs.send(new commands[command](input), { abortSignal: attempts.signal() });
    } catch (error) {
      const { name, message, $metadata } = /** @type {any} */ (error);
      const status = $metadata?.httpStatusCode ?? 0;
      const refused = status >= 400 && status < 500 && status !== 429 && !TRANSIENT_CODES.includes(name);
      throw new Failure(`${name}: ${message}`, { transient: !refused && !UNSENT.includes(name), cause: error });
    }
  }
}
