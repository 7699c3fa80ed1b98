// The client against a real `everfresh dev` with faults on the way. `scripts/clients` starts both and
// describes them in EVERFRESH_CLIENTS.

import assert from "node:assert/strict";
import { test } from "node:test";

import { SendError, Sender, Trigger, TriggerError, withPrewarmKey } from "everfresh-client";

const WORLD = JSON.parse(process.env.EVERFRESH_CLIENTS ?? "null");
const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
// Longer than an outage of the tests.
const PATIENT = { maxAttempts: 60, attemptTimeout: 1_000, totalTimeout: 60_000, maxBackoff: 500 };

async function control(command, given = {}) {
  const answer = await fetch(`${WORLD.control}/${command}`, { method: "POST", body: JSON.stringify(given) });
  return answer.json();
}

/** Ten at a time. */
async function atOnce(call, items) {
  const results = [];
  const queue = [...items.entries()];
  const work = async () => {
    for (let next; (next = queue.shift()); ) results[next[0]] = await call(next[1], next[0]);
  };
  await Promise.all(Array.from({ length: 10 }, work));
  return results;
}

/** A client, and messages for pages that only this test has. */
async function start(name) {
  const { SQSClient } = await import("@aws-sdk/client-sqs");
  await control("faults");
  const credentials = { accessKeyId: WORLD.access_key, secretAccessKey: WORLD.secret_key };
  const sqs = new SQSClient({ endpoint: WORLD.sqs, region: WORLD.region, credentials, maxAttempts: 1 });
  const queues = { main: WORLD.queue, lowPriority: WORLD.low_priority };
  const suite = name.replaceAll(" ", "-");
  return {
    suite,
    sender: new Sender(sqs, queues, { producer: { name: "typescript", version: "1" }, retry: PATIENT }),
    trigger: new Trigger(WORLD.site, WORLD.key, { retry: PATIENT }),
    messages: (count, fields = {}) => Array.from({ length: count }, (_, number) => ({ tenant: "demo", path: `/typescript-${suite}/${number}`, ...fields })),
  };
}

async function assertEachEndsOnce(suite, messages, sent) {
  const failed = sent.find((one) => one instanceof Error);
  assert.equal(failed, undefined);
  await control("faults", { kind: "keep" });
  const requests = messages.map(({ path }, at) => ({ path, key: sent[at].key }));
  const counted = await control("ended", { requests });
  console.log(`typescript: ${suite}: ${JSON.stringify(counted)}`);
  for (const count of ["records", "own records", "completed", "endings", "committed"]) {
    assert.equal(counted[count], requests.length, `${count}: ${JSON.stringify(counted)}`);
  }
  assert.deepEqual(Object.values(counted.waiting), [0, 0, 0]);
  return counted;
}

const scenario = (name, run) => test(name, { skip: !WORLD && "run by scripts/clients" }, async () => run(await start(name)));

scenario("requests end once", async ({ suite, sender, trigger, messages }) => {
  const all = messages(25);
  const trace = { traceparent: PARENT, tracestate: "congo=t61rcWkgMzE", xray: "Root=1-5759e988-bd862e3fe1be46a994272793" };
  const sent = [await sender.send(all[0], { trace }), ...(await sender.sendAll(all.slice(1)))];
  const tagged = await sender.send({ tenant: "demo", tag: `suite-${suite}` });
  await assertEachEndsOnce(suite, all, sent);
  assert.equal((await trigger.wait(sent[0].handle)).state, "completed");
  assert.equal((await trigger.wait(tagged.handle)).state, "completed");
});

scenario("network cut", async ({ suite, sender, messages }) => {
  const all = messages(40);
  await control("faults", { kind: "network", rate: 0.5 });
  const sent = await atOnce((message) => sender.send(message), all);
  const counted = await assertEachEndsOnce(suite, all, sent);
  assert.ok(counted.stored > counted.requests, "no message was sent twice");
});

scenario("network cut in batches", async ({ suite, sender, messages }) => {
  const all = messages(60);
  await control("faults", { kind: "network", rate: 0.5, seed: 2 });
  await assertEachEndsOnce(suite, all, await sender.sendAll(all));
});

scenario("throttling", async ({ suite, sender, messages }) => {
  const all = messages(40);
  await control("faults", { kind: "throttling", rate: 0.6 });
  const sent = await atOnce((message) => sender.send(message), all);
  const counted = await assertEachEndsOnce(suite, all, sent);
  assert.ok(counted.faults.throttled > 0);
});

scenario("restart of dev", async ({ suite, sender, messages }) => {
  const all = messages(60);
  let killed;
  const sent = await atOnce((message, at) => {
    if (at === 20) killed = control("kill");
    return sender.send(message);
  }, all);
  await killed;
  await assertEachEndsOnce(suite, all, sent);
});

scenario("signed requests", async ({ suite, trigger, messages }) => {
  const all = messages(40);
  await control("faults", { kind: "network", rate: 0.4, seed: 3 });
  let killed;
  const accepted = await atOnce(({ path }, at) => {
    if (at === 20) killed = control("kill");
    return trigger.revalidate({ path });
  }, all);
  await killed;
  await assertEachEndsOnce(suite, all, accepted);
  const status = await trigger.wait(accepted[0].handle);
  assert.deepEqual([status.state, status.ended], ["completed", true]);
  assert.deepEqual((await trigger.status(accepted[0].handle, status.after)).events, []);
});

scenario("signed requests throttled", async ({ suite, trigger, messages }) => {
  const all = messages(10);
  await control("faults", { kind: "throttling", rate: 0.4, seed: 4 });
  const accepted = await atOnce(({ path }) => trigger.revalidate({ path }), all);
  await assertEachEndsOnce(suite, all, accepted);
});

scenario("double fires", async ({ suite, sender, trigger, messages }) => {
  const all = messages(3);
  const sent = await Promise.all([...all, ...all, ...all].map((message) => sender.sendOnce(message)));
  const counted = await assertEachEndsOnce(suite, all, sent.slice(0, 3));
  assert.deepEqual([new Set(sent.map(({ key }) => key)).size, counted.stored], [3, 3]);
  const accepted = await Promise.all(["a", "a", "a"].map((id) => trigger.revalidateOnce({ path: `/typescript-${suite}/${id}` })));
  assert.equal(new Set(accepted.map(({ key }) => key)).size, 1);
});

scenario("prewarmed once", async ({ suite, sender, messages }) => {
  const all = messages(5, { reason: "prewarm" }).map((message) => withPrewarmKey(message, 7, "policy-3"));
  await sender.sendAll(all);
  await assertEachEndsOnce(suite, all, await sender.sendAll(all));
});

scenario("failed send names its key", async ({ messages, sender }) => {
  const impatient = new Sender({ send: async () => Promise.reject(new Error("the network is down")) }, { main: "queue" }, { retry: { maxAttempts: 2 } });
  const [message] = messages(1);
  const failure = await impatient.send(message).catch((error) => error);
  assert.ok(failure instanceof SendError && /^auto-[0-9a-f]{32}$/.test(failure.key));
  assert.equal((await sender.send(failure.request)).key, failure.key);
});

scenario("wrong key is refused without retries", async () => {
  const forged = new Trigger(WORLD.site, WORLD.key.slice(0, -1) + (WORLD.key.endsWith("0") ? "1" : "0"), { retry: PATIENT });
  await assert.rejects(forged.revalidate({ tag: "everything" }), (error) => error instanceof TriggerError && error.status === 401);
});
