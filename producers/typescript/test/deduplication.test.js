// What is one call: no network.

import assert from "node:assert/strict";
import { test } from "node:test";

import { RecentCalls, WINDOW } from "../src/deduplicate.js";

/** Calls that count, at the start of a window. */
function start() {
  const calls = { recent: new RecentCalls(), sent: [], send: async () => calls.sent.push(performance.now()) };
  return calls;
}

test("changed calls share one send after the last", async () => {
  const { recent, sent, send } = start();
  const results = await Promise.all(Array.from({ length: 5 }, () => recent.share("/a", send)));
  assert.deepEqual([sent.length, results], [1, [1, 1, 1, 1, 1]]);
});

test("changed call never joins an earlier send", async () => {
  const { recent, sent, send } = start();
  // A call at any time shares a send that begins after it.
  const called = [];
  const results = [];
  for (let at = 0; at < 40; at += 1) {
    called.push(performance.now());
    results.push(recent.share("/a", send));
    await new Promise((resolve) => setTimeout(resolve, 7));
  }
  const numbers = await Promise.all(results);
  numbers.forEach((number, at) => assert.ok(sent[number - 1] >= called[at]));
  assert.ok(sent.length < 10, `${sent.length} sends`);
});

test("other requests are sent separately", async () => {
  const { recent, sent, send } = start();
  await Promise.all(["/a", "/b", "/c"].map((request) => recent.share(request, send)));
  assert.equal(sent.length, 3);
});

test("expired call is sent at once and its duplicates dropped", async () => {
  const { recent, sent, send } = start();
  const began = performance.now();
  const results = await Promise.all([1, 2, 3].map(() => recent.lead("/a", send)));
  assert.deepEqual(results, [1, null, null]);
  assert.ok(sent[0] - began < WINDOW / 2);
});

test("failed lead lets the next call send", async () => {
  const { recent, send } = start();
  await assert.rejects(recent.lead("/a", async () => Promise.reject(new Error("no"))));
  assert.equal(await recent.lead("/a", send), 1);
});

test("failed send fails all calls that share it", async () => {
  const { recent } = start();
  let sends = 0;
  const fail = async () => Promise.reject(new Error(`send ${(sends += 1)}`));
  const results = await Promise.allSettled([1, 2, 3].map(() => recent.share("/a", fail)));
  assert.deepEqual(results.map(({ reason }) => reason.message), ["send 1", "send 1", "send 1"]);
});

test("calls beyond the memory are sent each", async () => {
  const { recent, sent, send } = start();
  for (let number = 0; number < 1_010; number += 1) await recent.lead(String(number), send);
  assert.equal(sent.length, 1_010);
});
