// Messages, keys, trace contexts and the check by schema: no network.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { checkSchema, generateKey, MessageError, pageHandle, parseMessage, prewarmKey, PUBLISHED_SCHEMA, toJson, UnsupportedVersion, validTrace, withPrewarmKey } from "../src/index.js";
import { SchemaError } from "../src/schema.js";
import { signature } from "../src/trigger.js";

const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const ROOT = "Root=1-5759e988-bd862e3fe1be46a994272793";

test("message is written in one form", () => {
  const message = { tenant: "acme", path: "/é?a=1", reason: "changed", key: "order-42:v3" };
  const written = toJson(message);
  assert.deepEqual(JSON.parse(written), { v: 1, tenant: "acme", path: "/é?a=1", reason: "changed", idempotency_key: "order-42:v3" });
  assert.deepEqual(parseMessage(written), message);
});

test("invalid messages are refused by field", () => {
  for (const [message, field] of [
    [{ tenant: "ACME", path: "/a" }, /tenant/],
    [{ tenant: "acme" }, /path/],
    [{ tenant: "acme", path: "/a", tag: "b" }, /tag/],
    [{ tenant: "acme", path: "a" }, /path/],
    [{ tenant: "acme", path: `/${"é".repeat(2048)}` }, /4097 bytes/],
    [{ tenant: "acme", path: "/\ud800" }, /Unicode/],
    [{ tenant: "acme", tag: "b\n" }, /tag/],
    [{ tenant: "acme", path: "/a", reason: "because" }, /reason/],
    [{ tenant: "acme", path: "/a", key: "a b" }, /idempotency_key/],
    [{ tenant: "acme", path: "/a", key: "" }, /idempotency_key/],
    [{ tenant: "acme", path: "/a", key: "k".repeat(129) }, /idempotency_key/],
    [{ tenant: "acme", path: "/a", colour: "red" }, /colour/],
  ]) {
    assert.throws(() => toJson(message), (error) => error instanceof MessageError && field.test(error.message), JSON.stringify(message));
  }
});

test("other bodies are refused when parsed", () => {
  for (const body of ["this is not JSON", "[]", "7", "null", '{"v":1,"tenant":"a","path":7}']) {
    assert.throws(() => parseMessage(body), MessageError, body);
  }
});

test("later version is reported as version", () => {
  assert.throws(() => parseMessage('{"v":2,"tenant":"acme","page":"/a"}'), (error) => error instanceof UnsupportedVersion && error.found === 2);
});

test("prewarm key depends on all its parts", () => {
  const parts = [["/a", 7, "p1"], ["/b", 7, "p1"], ["/a", 8, "p1"], ["/a", 7, "p2"]];
  assert.equal(new Set(parts.map((part) => prewarmKey(...part))).size, 4);
  for (const message of [{ tenant: "acme", path: "/a" }, { tenant: "acme", tag: "a", reason: "prewarm" }]) {
    assert.throws(() => withPrewarmKey(message, 7, "p1"), MessageError);
  }
});

test("generated keys are valid and differ", () => {
  const keys = new Set(Array.from({ length: 1000 }, generateKey));
  assert.equal(keys.size, 1000);
  toJson({ tenant: "acme", path: "/a", key: [...keys][0] });
});

test("handle is the hash of the path", () => {
  assert.equal(pageHandle("/products/figs", "k", 7), "436fe5ee94e6015495cf816b5b7b7fdedfce8833c2478839a4e2b0d25bf92aff.k@7");
});

test("signature matches the serving function", () => {
  // The vector of crates/serve/src/trigger/signature_tests.rs.
  const request = ["POST", "www.acme.example", "/_everfresh/revalidate", "1763270000", "5f0c3a1e9b7d4c2688aa01f3", "order-4711"];
  const signed = signature("0123456789abcdef0123456789abcdef", request, Buffer.from('{"path":"/products/42"}'));
  assert.equal(signed, "7058345cd8cff5c393376e9bad75bc9731b704d131dc00ae7159ea1e89511bac");
});

test("malformed trace contexts are dropped", () => {
  for (const traceparent of [PARENT, `01${PARENT.slice(2)}-more`]) {
    const trace = { traceparent, tracestate: "congo=t61rcWkgMzE, rojo=00f0", xray: `${ROOT};Parent=53995c3f42cd8ad8;Sampled=1` };
    assert.deepEqual(validTrace(trace), trace);
  }
  const zeros = `00-${"0".repeat(32)}-b7ad6b7169203331-01`;
  for (const traceparent of ["", "00", PARENT.toUpperCase(), `${PARENT}-more`, `ff${PARENT.slice(2)}`, PARENT.slice(1), zeros, `${PARENT}\n`]) {
    assert.deepEqual(validTrace({ traceparent, tracestate: "a=1" }), {}, traceparent);
  }
  const many = Array.from({ length: 33 }, (_, n) => `k${n}=v`).join(",");
  for (const tracestate of ["", "novalue", "k=", "k=v\n", many, `k=${"v".repeat(511)}`]) {
    assert.deepEqual(validTrace({ traceparent: PARENT, tracestate }), { traceparent: PARENT }, tracestate);
  }
  for (const xray of ["", "Sampled=1", "Root=1-5759e988", "Root", `${ROOT};Evil=1`]) {
    assert.deepEqual(validTrace({ xray }), {}, xray);
  }
});

test("published schema fits this client", () => {
  assert.deepEqual(checkSchema(PUBLISHED_SCHEMA), []);
});

test("schema of another version is refused", () => {
  const later = structuredClone(PUBLISHED_SCHEMA);
  later.properties.v.const = 2;
  assert.deepEqual(checkSchema(later), ["the schema has version 2; this client writes version 1"]);
});

test("schema that requires more is refused", () => {
  assert.ok(checkSchema({ ...PUBLISHED_SCHEMA, required: ["v", "tenant", "shard"] }).includes("field `shard` is missing"));
});

test("unknown keyword is not ignored", () => {
  assert.throws(() => checkSchema({ ...PUBLISHED_SCHEMA, minProperties: 3 }), SchemaError);
});

test("command exits with one for an invalid message", () => {
  const folder = mkdtempSync(join(tmpdir(), "everfresh-"));
  try {
    const file = join(folder, "messages.jsonl");
    const command = fileURLToPath(new URL("../src/check.js", import.meta.url));
    const good = '{"v":1,"tenant":"acme","path":"/a"}\n\n{"v":1,"tenant":"acme","tag":"t"}\n';
    writeFileSync(file, good);
    assert.match(execFileSync(process.execPath, [command, file], { encoding: "utf8" }), /^2 messages/);
    writeFileSync(file, `${good}nonsense\n{"v":1,"tenant":"acme"}\n`);
    const refused = spawnSync(process.execPath, [command, file], { encoding: "utf8" });
    assert.deepEqual([refused.status, refused.stderr.split("\n").map((line) => line.split(":")[1])], [1, ["4", "5", undefined]]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
